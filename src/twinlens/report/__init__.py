"""The report: from run directories to one self-contained page, and figures and tables for papers."""

from twinlens.report.false_features import write_false_features
from twinlens.report.figures import write_figures
from twinlens.report.page import write_report
from twinlens.report.sheet import write_sheet
from twinlens.report.table_formats import format_table

__all__ = ["format_table", "write_false_features", "write_figures", "write_report", "write_sheet"]
