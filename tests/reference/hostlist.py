"""Lists of machines written out character by character, as slowly and literally as can be."""


def split_outside_brackets(text: str) -> list[str]:
    """Cut at commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def machines(text: str) -> list[str]:
    """Write out a list: the first bracket of a name is replaced by each of its numbers, until none is left."""
    found = []
    for name in split_outside_brackets(text):
        if "[" not in name:
            found.append(name)
            continue
        before, _, rest = name.partition("[")
        inside, _, after = rest.partition("]")
        for piece in inside.split(","):
            first, _, last = piece.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found += machines(before + str(number).rjust(len(first), "0") + after)
    return found
