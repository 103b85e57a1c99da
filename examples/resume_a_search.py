"""Search for a while, write the tree to a file, and go on searching later."""

import planvec

planner = planvec.MCTS(num_simulations=500, rollout_horizon=20)
with planvec.make("Acrobot-v1", num_workers=0) as env:
    plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    plan.search_data.save("tree.npz")
    print(plan)
    tree = planvec.Tree.load("tree.npz", env)
    more = planner.resume(env, tree, seed=1)
    print(more, "with", more.search_data.num_nodes, "nodes")
