"""Commands for people: `mqadmin topic list`, `mqadmin group lag billing`, `mqadmin dlq resend billing`.

A module holds one group of commands, in a list that `app.py` registers:

    COMMANDS = Commands()

    @COMMANDS.add("list", "List topics.", "mqadmin topic list --filter Order")
    async def list_topics(admin: Admin, as_json: Json = False) -> None:
        await show(..., as_json=as_json)

The last arguments of `add` are the examples of `--help`. A command reads a `Result`, a typed struct; `output.py` prints
it as tables or as JSON. Commands that delete, reset or resend wait for a
confirmation (`confirmation.py`).
"""
