"""What commands tell, as data: a document for programs and a sheet of lines, fields and tables for people.

A command looks at a home and answers with a `Told`. It may run beside its home or on a server: the answer is the same, and `cli` prints
it where the user is, in the width and colours of that terminal. So `detent show` and `detent show --connect URL` cannot differ.

- `text` has styles and text that is safe to show, `sheet` has the sheet itself and its form on the wire.
- `list`, `show`, `explain` and `result` answer the commands of those names. `show_run`, `show_elements` and `ordered` have the parts of a run,
  of a job that is many calls, and of an ordered run; `contract_text` says in few words what a step does.
"""
