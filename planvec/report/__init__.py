"""An interactive report of an episode: one HTML file without network access.

decision    what is kept of each decision: its actions, and a drawing of its tree, swarm or sequences
recorder    keeps that while a run is played
page        makes the page, with Bokeh
"""

from __future__ import annotations

from planvec.report.decision import Decision, decision_of
from planvec.report.page import check_report_path, write_report
from planvec.report.recorder import ReportRecorder

__all__ = ["Decision", "ReportRecorder", "check_report_path", "decision_of", "write_report"]
