"""`diagnose`: whether a run is any good, and if not, what to change to what."""

from scirocco.analysis.diagnosis.diagnose import diagnose
from scirocco.analysis.diagnosis.report import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "diagnose"]
