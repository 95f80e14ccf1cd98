"""How a user's file is opened and read: bounded, never waited on, and with faults that name the file, the line and what was expected.

A reader declares what it wants and gets arrays:

```python
from armillary.files import Column, read_table

table = read_table(
    path,                                                   # .csv, .tsv, .jsonl or .parquet, plain, .gz or .zst
    [
        Column("time", "time", aliases=("timestamp", "t"), least=0, not_decreasing=True),
        Column("size", "int", unit="bytes", least=1, most=1 << 40),
        Column("op", "str", choices=("read", "write")),
        Column("node", "str", optional=True),               # may be missing: `"node" in table`
        Column("weight", default=1.0),                      # missing or empty becomes 1.0
    ],
    row_limit=1_000_000,
)
table["time"]                                               # float64 array; `table.frame` is the Polars frame
node, names = table.numbered("node")                        # numbers in the order of first appearance, and the names
raise table.error(row, f"found {x}; expected …", "size")    # what only the reader can know, with its line
```

A bad file ends in one line, such as
`trace.csv:1841: column "time": found "13:07" after 46812.5; expected seconds that do not decrease`.

| to read | call |
|---|---|
| a table | `read_table(path, columns, first=, unique=, header=, delimiter=, comment=, …)` |
| a table that does not fit memory | `for part in scan_table(path, columns): …` |
| which of several layouts a table has | `column_names(path)` |
| a JSON document | `read_json(path, limit=)`; text that is already there, `parse_json(text, where)` |
| YAML documents without tags (needs PyYAML) | `read_yaml(path, limit=)`; text that is already there, `parse_yaml(text, where)` |
| JSON objects with lists inside, one per line | `for line, row in read_json_lines(path): …` |
| lines of text in a format of one's own | `for number, line in read_lines(path): …` |
| whole text or bytes | `read_text(path, limit=)`, `read_bytes(path, limit=)` |
| bytes as a stream | `with open_file(path) as file: …` (`seekable=True` where a library seeks, `unpack=False` for raw records) |
| the beginning, to tell the format | `read_head(path)` |
| lines as bytes, for a compiled parser | `for block, first_line in line_blocks(path): …` |
| the array in an `.npy`, mapped | `map_array(path)` |
| arrays in an `.npz` | `read_arrays(path, names)`; `check_archive(path)` before another library opens it |
| a column of an Arrow file | `check_arrow(file, where, limit)`, then `read_arrow(file, where, name)`, both in `armillary.files.arrow` |
| a file of a store, which must not be a link | `open_regular(folder, name, flags, where)` in `armillary.files.stores` |

`file_digest`, `folder_digest` and `content_digest` say whether content is the same, and `crc32c` whether stored bytes are whole.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
