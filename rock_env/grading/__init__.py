"""Verification: what the agent left in its sandbox, graded by tests that it never saw, in a box it never touched."""

from rock_env.grading.grades import Flakiness, Prepare, grade_task, repeat, verdict_of
from rock_env.grading.history import strip_history
from rock_env.grading.image import OWN_FOLDERS
from rock_env.grading.leaks import Leak, leaks
from rock_env.grading.outcomes import Outcome, Unreadable
from rock_env.grading.parsers import EXIT_CODE, PARSERS
from rock_env.grading.verifier import Report, run_verifier
from rock_env.grading.work import carry_work, need_box, steers_tests

__all__ = [
    "EXIT_CODE",
    "OWN_FOLDERS",
    "PARSERS",
    "Flakiness",
    "Leak",
    "Outcome",
    "Prepare",
    "Report",
    "Unreadable",
    "carry_work",
    "grade_task",
    "leaks",
    "need_box",
    "repeat",
    "run_verifier",
    "steers_tests",
    "strip_history",
    "verdict_of",
]
