"""What a page shows of a command's output is held against what the command prints."""

import pytest
from integration.docs.page_steps import check_shown

SAID = "-- warm-up\nstep 0  held-out success 0.013 [0.001, 0.02]\nstep 1/20  0.5 success\nruns/a: 0.1 -> 0.9, 58 s\n"


def test_lines_come_in_their_order_with_other_numbers() -> None:
    check_shown("step 0 held-out success 0.5 [0.4, 0.6]\n…\nruns/a: 0.2 -> 1, …\n", SAID)
    check_shown("step 7/9  …", SAID)


@pytest.mark.parametrize(
    "shown",
    ["step 0 held-out failure 0.5 …", "runs/a: 0.2 -> 0.9, 58 s\nstep 0  …", "runs/b: …", "step 1/20"],
)
def test_what_does_not_come_so_fails(shown: str) -> None:
    with pytest.raises(AssertionError, match="the page shows"):
        check_shown(shown, SAID)
