from io import StringIO

from rich.console import Console

from cranny.report.text_table import TextTable, terminal_table, text_table_html

SHEET = TextTable("Waits & more", "A <note>.", ("", "mean"), (("[red]x", "1 h"), ("<b>", "2 h")))


def test_a_sheet_reads_the_same_on_a_terminal() -> None:
    text = StringIO()
    Console(file=text, width=80).print(terminal_table(SHEET))
    for words in ("Waits & more", "A <note>.", "mean", "[red]x", "1 h", "<b>"):
        assert words in text.getvalue()


def test_a_sheet_on_a_page_is_text_only() -> None:
    page = text_table_html(SHEET)
    assert "Waits &amp; more" in page
    assert "A &lt;note&gt;." in page
    assert "<b>" not in page
    assert page.count("<tr>") == 3
