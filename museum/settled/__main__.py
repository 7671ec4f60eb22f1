"""Answers the questions that are settled and writes docs/settled.md: `python -m museum.settled`.

What was answered already is not run again, so an interrupted call can be repeated.
"""

from museum.overlays import PieceFailed
from museum.settled.answering import shown_of
from museum.settled.page import PAGE, render
from museum.settled.table import QUESTIONS, Answer


def main() -> None:
    """Runs the commands."""
    shown: dict[Answer, str] = {}
    failed = 0
    for answer in (each for question in QUESTIONS for each in question.answers):
        print(answer.command, flush=True)
        try:
            shown[answer] = shown_of(answer)
            print(shown[answer], flush=True)
        except PieceFailed as error:
            failed += 1
            print(f"FAILED: {error}", flush=True)
    if failed:
        raise SystemExit(f"museum: {failed} commands did not say what the table says.")
    PAGE.write_text(render(shown))
    print(f"museum: {PAGE} is written.")


if __name__ == "__main__":
    main()
