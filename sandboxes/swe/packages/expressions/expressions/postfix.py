"""Turn tokens into postfix order: operands first, then their operator."""

PRIORITIES = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 3}


def priority(operator, default=0):
    """Return how strongly an operator binds."""
    return PRIORITIES.get(operator, default)


def pop_operators(stack, symbol):
    """Take the operators off the stack that go before symbol."""
    taken = []
    for above in reversed(list(stack)):
        if above == "(" or priority(above) < priority(symbol):
            break
        if symbol == above == "^":
            break
        taken.append(stack.pop())
    return taken


def to_postfix(tokens):
    """Return the tokens in postfix order; raise ValueError on bad parentheses."""
    output = []
    waiting = ["("]
    for token in tokens + [")"]:
        if not waiting:
            raise ValueError("a parenthesis is not opened")
        if priority(token) > 0 or token == ")":
            output.extend(pop_operators(waiting, token))
        elif token != "(":
            output.append(token)
        if token == ")":
            waiting.pop()
        elif priority(token) > 0 or token == "(":
            waiting.append(token)
    if waiting:
        raise ValueError("a parenthesis is not closed")
    return output
