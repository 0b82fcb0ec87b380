"""The reference of the policies, from their table."""

from docs.generate.markdown import code, table

from cranny.policies import DEFAULT_POLICY, TABLE

INTRODUCTION = f"""# Policies

All policies of `cranny policies`, with the queue order that each has unless `--order` names another, and the paper
that it comes from. `{DEFAULT_POLICY}` is the policy of commands and calls that name none.
[Rivals](../understand/rivals.md) says how those of other papers are read.
"""


def page() -> str:
    """Return the page: one row a policy, in the order of the table."""
    rows = [(code(name), entry.about, code(entry.order), entry.paper) for name, entry in TABLE.items()]
    return "\n".join([INTRODUCTION, table(("policy", "what it does", "queue order", "from"), rows)])
