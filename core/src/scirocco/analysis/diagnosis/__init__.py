"""`diagnose`: whether a run can be trusted, and if not, what to change."""

from scirocco.analysis.diagnosis.diagnose import diagnose
from scirocco.analysis.diagnosis.report import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
