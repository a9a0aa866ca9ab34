import pytest

from pipelines.review import demo


def test_the_terminal_obeys_no_folder_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    demo.say("error: INPUT: Folder '/srv/\x1b]0;x\x07\x9b2J\u202e' does not exist\nnext: x")

    assert capsys.readouterr().err == (
        "error: INPUT: Folder '/srv/\\u001b]0;x\\u0007\\u009b2J\\u202e' does not exist\nnext: x\n"
    )
