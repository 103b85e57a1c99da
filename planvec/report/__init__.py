"""An interactive report of an episode: one HTML file without network access.

decision    what is kept of each decision of a run: its actions, and a drawing of its tree, swarm or sequences
page        makes the page, with Bokeh
"""

from __future__ import annotations

from planvec.report.decision import Decision, ReportRecorder, decision_of
from planvec.report.page import check_report_path, write_report

__all__ = ["Decision", "ReportRecorder", "check_report_path", "decision_of", "write_report"]
