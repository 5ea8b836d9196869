"""SQL92 expressions over a message's properties: `a > 5 AND (b = 'x' OR b IS NULL)`.

    errors.py       errors in an expression, and errors of an evaluation
    lexer.py        text -> tokens
    nodes.py        the nodes of an expression
    parser.py       tokens -> nodes, with the checks that need no message
    numbers.py      number parsing by Java's rules
    properties.py   lookup of one property in a property string
    comparing.py    comparison of two values
    closures.py     nodes -> functions
    filter.py       the whole: text -> `Sql92Filter`, which tests property strings

All decisions about an expression are made once, when it is compiled. The result is a tree of small functions. The types
of all values are known then: a property is text or missing, a number comes from the expression itself. So no function
checks types at run time.

Logic has three values: True, False and None (unknown). A message matches if the whole is True. A comparison that is not
possible, of a number with a text that is not a number, is an error. It ends the evaluation wherever it occurs: the
message does not match, whatever the other side of an OR is.

Source: docs/reference/wire.md, "SQL92 expressions".
"""
