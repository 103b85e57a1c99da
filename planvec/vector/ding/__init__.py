"""DI-engine's environment managers over few workers that survive crashes (extra "ding").

In a configuration of DI-engine:

    manager=dict(type="planvec_subprocess", import_names=["planvec.vector.ding"])

"planvec_async_subprocess" and "planvec_subprocess_v2" are the others.
"""

from __future__ import annotations

try:
    import ding.envs  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("planvec.vector.ding needs DI-engine: pip install DI-engine") from error

from planvec.vector.ding.managers import (
    AsyncSubprocessEnvManager,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from planvec.vector.ding.supervisor import EnvSupervisor

__all__ = ["AsyncSubprocessEnvManager", "EnvSupervisor", "SubprocessEnvManagerV2", "SyncSubprocessEnvManager"]
