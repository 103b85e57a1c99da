"""Makes the pictures of a MuJoCo environment depend on its state alone."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np


def fix_camera(env: Any) -> None:
    """Point a free camera at the model in the pose that its file describes."""
    # Gymnasium points it at the state that is rendered first, so pictures would depend on the worker.
    # (`AddRenderObservation` renders in its constructor, after a reset without a seed.)
    described = mujoco.MjData(env.model)
    mujoco.mj_kinematics(env.model, described)
    renderer = env.mujoco_renderer
    config = {"lookat": np.median(described.geom_xpos, axis=0), **(renderer.default_cam_config or {})}
    renderer.default_cam_config = config
    for viewer in getattr(renderer, "_viewers", {}).values():
        viewer.cam.lookat[:] = config["lookat"]
