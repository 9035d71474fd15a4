"""The examples in docs/python.md print what it shows, in a running event loop and in a notebook."""

import ast
import asyncio
import inspect
import re

import pytest

import gymcli
from tests.docs.pages import blocks, page, table_names

TEXT = page("python.md")
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$\n\n^```text\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
)


def test_every_example_has_its_output():
    assert len(EXAMPLES) == len(blocks("python", TEXT))


def test_calls_are_public():
    names = {re.sub(r".*?(\w+)\(.*", r"\1", name) for name in table_names("call", TEXT)}
    assert names <= {*gymcli.__all__}


def test_examples_print_what_is_shown_in_a_running_loop(working_folder, monkeypatch, capsys):
    monkeypatch.setattr(asyncio, "run", lambda main: main.close())  # one loop runs already
    names = {"__name__": "__main__"}

    async def run_all():
        for source, shown in EXAMPLES:
            if "asyncio.run" in source:
                source = source.replace("asyncio.run(main())", "await main()")
            code = compile(source, "python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            awaitable = eval(code, names)
            if inspect.isawaitable(awaitable):
                await awaitable
            assert capsys.readouterr().out == shown, source

    with asyncio.Runner() as runner:
        runner.run(run_all())


@pytest.mark.slow
def test_examples_print_what_is_shown_in_a_notebook(tmp_path, monkeypatch):
    reason = "needs nbclient and ipykernel, which no other test needs"
    pytest.importorskip("ipykernel", reason=reason)
    nbclient = pytest.importorskip("nbclient", reason=reason)
    import nbformat  # late: nbclient brings it

    monkeypatch.chdir(tmp_path)
    examples = [(source, shown) for source, shown in EXAMPLES if "asyncio.run" not in source]
    tables = ["reports", "comparison", "gates", "gymcli.runs('runs')"]
    cells = [nbformat.v4.new_code_cell(source) for source in [*(s for s, _ in examples), *tables]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    printed = ["".join(out.text for out in cell.outputs if "text" in out) for cell in cells]
    assert printed[: len(examples)] == [shown for _, shown in examples]
    for cell in cells[len(examples) :]:
        assert cell.outputs[0].data["text/html"].startswith("<table><caption>")
