"""Work out the value of an expression."""

from expressions.postfix import priority, to_postfix
from expressions.tokens import tokenize, value_of


def apply(operator, left, right):
    """Return left operator right."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "^":
        return left**right
    if right == 0:
        raise ValueError("division by zero")
    return left / right


def evaluate(postfix, names):
    """Return the value of tokens in postfix order."""
    stack = []
    for token in postfix:
        if priority(token) == 0:
            stack.append(value_of(token, names))
            continue
        if len(stack) < 2:
            raise ValueError("an operand is missing")
        second = stack.pop()
        first = stack.pop()
        stack.append(apply(token, first, second))
    if len(stack) != 1:
        raise ValueError("an operator is missing")
    return stack[0]


def calculate(text, **names):
    """Return the value of an expression with the given variables."""
    postfix = to_postfix(tokenize(text))
    return evaluate(postfix, names)
