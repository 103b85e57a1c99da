"""Play MsPacman with a swarm in two worker processes, and film it."""

import planvec
from planvec import video

planner = planvec.Swarm(num_walkers=16, num_iterations=8, dt=(4, 12))
with planvec.make("ALE/MsPacman-v5", num_workers=2, render_mode="rgb_array") as env:
    episode = planvec.run_episode(env, planner, seed=0, max_steps=30)
    video.write_video("mspacman.gif", video.episode_frames(env, episode), fps=15)
print(episode, "- see mspacman.gif")
