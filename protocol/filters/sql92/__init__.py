"""SQL92 expressions over a message's properties: `a > 5 AND (b = 'x' OR b IS NULL)`.

    errors.py       what is wrong with an expression, and where
    lexer.py        text -> tokens
    nodes.py        what an expression consists of
    parser.py       tokens -> nodes, with the checks that need no message
    numbers.py      texts that are numbers, as Java reads them
    properties.py   one property out of a property string
    comparing.py    how two values compare
    closures.py     nodes -> functions
    filter.py       the whole: text -> `Sql92Filter`, which tests property strings

Everything about an expression is decided once, when it is compiled. What is left is a tree of small functions, and the
types of everything but a property's text are known: a property is text or missing, a number comes from the expression
itself. So no function ever asks what it has been given.

Logic has three values: True, False and None (unknown). A message matches if the whole is True. A comparison that
cannot be made, of a text that is no number with a number, is an error, which ends the evaluation wherever it happens:
such a message does not match, whatever stands on the other side of an OR.

Source: docs/formats.md, "SQL92 expressions".
"""
