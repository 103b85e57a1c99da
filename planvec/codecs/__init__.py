"""Saves and restores environments.

base        what a codec is
selection   which codec an environment has: the families, registered codecs, and what else there is
verify      `codec_for`, which takes one and proves it by replay
stack       the codec of an environment with its wrappers; `wrappers` knows Gymnasium's
generic     codecs for environments of any class
gymnasium, mujoco, box2d, atari, openspiel, retro    the families: a new one is a file or folder with
            `codec_for_env`, and a line of `FAMILIES` in `selection`
"""

from __future__ import annotations

# Hands on the names that other folders use.
# ruff: noqa: F401
# mypy: implicit-reexport
from planvec.codecs.base import (
    Codec,
    Env,
    Outcome,
    RollOut,
    Rows,
    StateCodec,
    Step,
    WrapperCodec,
    wrappers_of,
)
from planvec.codecs.compare import describe_difference, digest, same
from planvec.codecs.family_report import markdown_table, measured, saved_arrays, text_table
from planvec.codecs.generic.attributes import ADVICE, names_in_code
from planvec.codecs.generic.copied import Copied, Named, names_of
from planvec.codecs.generic.replay import Replayed
from planvec.codecs.generic.runners import may_fork
from planvec.codecs.generic.shared import EnvFunctions, Sharing, Watch, find_shared, same_layers
from planvec.codecs.generic.survey import drawn_elsewhere
from planvec.codecs.positions import Positions
from planvec.codecs.reported import LegalActions
from planvec.codecs.resident import ResidentCodecs
from planvec.codecs.selection import (
    FAMILIES,
    CodecChoice,
    Family,
    quiet_libraries,
    register_codec,
    register_wrapper_codec,
    registered_codecs,
)
from planvec.codecs.stack import LayerCodecs, Proof, ResidentState
from planvec.codecs.unpickling import from_file
from planvec.codecs.verify import RandomWalk, check_codec, codec_for, time_codec
