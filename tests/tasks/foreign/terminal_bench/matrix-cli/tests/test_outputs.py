import random
import subprocess
import tempfile
from pathlib import Path


def run(verb, *matrices):
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number, matrix in enumerate(matrices):
            file = Path(folder, f"{number}.txt")
            file.write_text("".join(" ".join(map(str, row)) + "\n" for row in matrix))
            names.append(str(file))
        return subprocess.run(
            ["python3", "/app/matrix.py", verb, *names], capture_output=True, text=True, timeout=60, cwd="/"
        )


def read(text):
    return [[float(cell) for cell in line.split()] for line in text.splitlines()]


def test_program_exists():
    assert Path("/app/matrix.py").is_file(), "there is no /app/matrix.py"


def test_add_prints_whole_numbers_plainly():
    done = run("add", [[1, 2], [3, 4]], [[0.5, -1], [2, 0]])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.5 1\n5 4\n", repr(done.stdout)


def test_multiply_large():
    draw = random.Random(7)
    a = [[draw.randint(-9, 9) for _ in range(30)] for _ in range(40)]
    b = [[draw.randint(-9, 9) for _ in range(20)] for _ in range(30)]
    done = run("mul", a, b)
    expected = [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
    assert read(done.stdout) == expected
    assert "." not in done.stdout


def test_shapes_that_do_not_fit():
    for verb, a, b in (("add", [[1, 2]], [[1], [2]]), ("mul", [[1, 2]], [[1, 2]])):
        done = run(verb, a, b)
        assert (done.returncode, done.stdout, done.stderr.strip()) == (3, "", "shapes do not fit"), done
