"""Writes small workbooks in Excel's format without a package."""

import datetime as dt
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/>'
    '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.spreadsheetml.sheet.main+xml"/></Types>'
)
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_EPOCH = dt.datetime(1899, 12, 30)
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><cellXfs count="2"><xf numFmtId="0"/>'
    '<xf numFmtId="22" applyNumberFormat="1"/></cellXfs></styleSheet>'
)


def write_workbook(path, sheets, hidden=()):
    """Write sheets, each a list of rows by its name; a cell that is None is left out."""
    names = list(sheets)
    listed = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="rId{number}"'
        f"{' state=' + chr(34) + 'hidden' + chr(34) if name in hidden else ''}/>"
        for number, name in enumerate(names, 1)
    )
    relations = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/worksheet" '
        f'Target="worksheets/sheet{number}.xml"/>'
        for number, _ in enumerate(names, 1)
    )
    styles = f'<Relationship Id="rId0" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    with zipfile.ZipFile(Path(path), "w") as file:
        file.writestr("[Content_Types].xml", _TYPES)
        file.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
            f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        file.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
        )
        file.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{_RELATIONS}">{relations}{styles}</Relationships>',
        )
        file.writestr("xl/styles.xml", _STYLES)
        for number, rows in enumerate(sheets.values(), 1):
            data = "".join(_row(number, cells) for number, cells in enumerate(rows, 1))
            file.writestr(
                f"xl/worksheets/sheet{number}.xml",
                f'<worksheet xmlns="{_MAIN}"><sheetData>{data}</sheetData></worksheet>',
            )


def _row(number, cells):
    written = (_cell(f"{chr(65 + place)}{number}", cell) for place, cell in enumerate(cells))
    return f'<row r="{number}">{"".join(written)}</row>'


def _cell(place, value):
    match value:
        case None:
            return ""
        case bool():
            return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
        case int() | float():
            return f'<c r="{place}"><v>{value}</v></c>'
        case dt.datetime():
            days = (value - _EPOCH) / dt.timedelta(days=1)
            return f'<c r="{place}" s="1"><v>{days}</v></c>'
    text = f'<t xml:space="preserve">{escape(value)}</t>'
    return f'<c r="{place}" t="inlineStr"><is>{text}</is></c>'
