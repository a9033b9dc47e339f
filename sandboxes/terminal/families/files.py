"""Files and text: find, rename, rewrite, split, list, permissions, links, encodings."""

from __future__ import annotations

from sandboxes.terminal.checks import keeps, modes_are, text_is, tree_is
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES"]


def _lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _log_errors(draw: Draw) -> Scenario:
    rng, services = draw.rng, draw.names("service", 5)
    counts = dict.fromkeys(services[:4], 0)
    lines = []
    for second in range(draw.number(90, 140)):
        service = rng.choice(services)
        level = rng.choice(["INFO", "INFO", "WARN", "ERROR"])
        if level == "ERROR" and service not in counts:
            level = "WARN"
        if level == "ERROR":
            counts[service] += 1
        message = rng.choice(["request done", "retry after ERROR 17", "slow answer", "queue is full"])
        lines.append(f"2024-03-05 10:{second // 60:02}:{second % 60:02} {level} {service}: {message}")
    ranked = sorted((-count, service) for service, count in counts.items() if count)
    script = '$3 == "ERROR" { sub(":", "", $4); n[$4]++ } END { for (s in n) print s, n[s] }'
    return Scenario(
        goal="Count the lines of level ERROR of each service in app.log (the third column is the level, the fourth the "
        "service). Write errors.txt with one line for each service that has any: the service, a space, the count; "
        "highest count first, equal counts in alphabetical order.",
        files={"app.log": _lines(lines)},
        checks=(
            text_is("errors.txt", "\n".join(f"{service} {-count}" for count, service in ranked)),
            keeps({"app.log": _lines(lines)}),
        ),
        solution=(
            "bash head -n 6 app.log",
            f"bash awk '{script}' app.log | sort -k2,2nr -k1,1 > errors.txt; cat errors.txt",
        ),
        shortcuts=(
            "bash : > errors.txt",
            'bash grep ERROR app.log | awk \'{sub(":", "", $4); print $4}\' | sort | uniq -c | sort -nr > errors.txt',
        ),
    )


def _rename_extension(draw: Draw) -> Scenario:
    place, words = draw.name("place"), draw.names("word", 8)
    names = [
        f"{words[0]}.txt",
        f"{words[1]} {words[2]}.txt",
        f"{place}/{words[3]}.TXT",
        f"{place}/old {words[4]}/{words[5]}.txt",
        f"{place}/{words[6]}.txt.bak",
        f"{words[7]}.text",
    ]
    contents = {name: f"About {name}: {draw.code(name)}\n".encode() for name in names}
    renamed = {
        f"{name[:-4]}.md" if name.lower().endswith(".txt") else name: content
        for name, content in contents.items()
    }
    return Scenario(
        goal="Rename every file below notes/, at any depth, whose name ends in .txt or .TXT so that it ends in .md "
        "instead. Some names contain spaces. Leave the contents and all other files alone.",
        files={f"notes/{name}": content for name, content in contents.items()},
        checks=(tree_is("notes", renamed),),
        solution=(
            "bash find notes -type f | sort",
            'bash for f in $(find notes -iname \'*.txt\'); do mv "$f" "${f%.*}.md"; done 2>&1 | wc -l; '
            "find notes -iname '*.txt' | sort",
            'bash find notes -type f -iname "*.txt" -print0 | while IFS= read -r -d "" f; do mv "$f" "${f%.*}.md"; done; '
            "find notes -type f | sort",
        ),
        shortcuts=(
            'bash for f in notes/*.txt; do mv "$f" "${f%.txt}.md"; done',
            "bash find notes -iname '*.txt*' -print0 | while IFS= read -r -d '' f; do mv \"$f\" \"${f%%.*}.md\"; done",
        ),
    )


def _config_key(draw: Draw) -> Scenario:
    old, new = (f"{name}-{draw.number(1, 9)}.internal" for name in draw.names("place", 2))
    services = draw.names("service", 5)
    files, fixed = {}, {}
    for number, service in enumerate(services):
        folder = "etc" if number % 2 else f"etc/{service}.d"
        upstream = old if number != 3 else f"{old}.example"
        before = (
            f"# upstream = {old}\nname = {service}\nupstream = {upstream}\nfallback = {old}\nworkers = "
            f"{draw.number(1, 16)}\n"
        )
        after = before if number == 3 else before.replace(f"\nupstream = {old}\n", f"\nupstream = {new}\n")
        files[f"{folder}/{service}.conf"], fixed[f"{folder}/{service}.conf"] = before.encode(), after.encode()
    files["etc/old.conf.bak"] = fixed["etc/old.conf.bak"] = f"upstream = {old}\n".encode()
    pattern = old.replace(".", "\\.")
    return Scenario(
        goal=f"In every file below etc/ whose name ends in .conf, change the key upstream from {old} to {new} where it "
        "has exactly that value. Leave comments, other keys, other values and other files as they are.",
        files=files,
        checks=(tree_is("etc", {name.removeprefix("etc/"): content for name, content in fixed.items()}),),
        solution=(
            f"bash grep -rn {old} etc | sort",
            f"bash find etc -name '*.conf' -exec sed -i 's/^upstream = {pattern}$/upstream = {new}/' {{}} +; grep -rn "
            "upstream etc | sort",
        ),
        shortcuts=(
            f"bash grep -rl {old} etc | xargs sed -i 's/{old}/{new}/g'",
            f"bash sed -i 's/^upstream = .*/upstream = {new}/' etc/*.conf etc/*/*.conf",
        ),
    )


def _unique_lines(draw: Draw) -> Scenario:
    rng, words = draw.rng, draw.names("word", 9)
    lines: list[str] = []
    for _ in range(draw.number(30, 50)):
        word = rng.choice(words)
        lines.append(rng.choice([word, word.upper(), word.title(), word, ""]))
    seen: set[str] = set()
    kept = []
    for line in lines:
        if line and line.lower() not in seen:
            seen.add(line.lower())
            kept.append(line)
    return Scenario(
        goal="words.txt has one word per line. Write unique.txt with its lines in their order, but without empty lines "
        "and without any word that came before in whatever mixture of capitals; the first spelling stays.",
        files={"words.txt": _lines(lines)},
        checks=(text_is("unique.txt", "\n".join(kept)), keeps({"words.txt": _lines(lines)})),
        solution=(
            "bash head words.txt; wc -l words.txt",
            "bash awk 'NF && !seen[tolower($0)]++' words.txt > unique.txt; cat unique.txt",
        ),
        shortcuts=(
            "bash touch unique.txt",
            "bash sort -fu words.txt > unique.txt",
            "bash cp words.txt unique.txt",
        ),
    )


def _permissions(draw: Draw) -> Scenario:
    words = draw.names("word", 8)
    files, modes = {}, {}
    for number, word in enumerate(words):
        folder = ("", "lib/", "lib/extra/")[number % 3]
        name = f"{folder}{word}{('', '.sh', '.py', '.txt')[number % 4]}"
        script = draw.rng.random() < 0.5 if number > 1 else number == 0
        head = "#!/bin/sh\n" if script else "Run with #!/bin/sh\n"
        files[f"tools/{name}"] = f"{head}echo {draw.code(word)}\n".encode()
        modes[name] = 0o755 if script else 0o644
    flip = " ".join(f"tools/{name}" for name, mode in modes.items() if mode == 0o644)
    return Scenario(
        goal="Below tools/, every file whose first two characters are #! must have the permissions 755, and every other "
        "file 644, whatever its name is. Change no content.",
        files=files,
        setup=f"chmod 600 {' '.join(files)}; chmod 777 {flip}",
        checks=(modes_are("tools", modes), keeps(files)),
        solution=(
            "bash find tools -type f -printf '%m %p\\n' | sort -k2",
            'bash find tools -type f | while read -r f; do if [ "$(head -c 2 "$f")" = "#!" ]; then chmod 755 "$f"; else '
            'chmod 644 "$f"; fi; done',
            "bash find tools -type f -printf '%m %p\\n' | sort -k2",
        ),
        shortcuts=(
            "bash chmod -R 755 tools",
            "bash chmod 755 $(find tools -name '*.sh'); chmod 644 $(find tools -type f ! -name '*.sh')",
        ),
    )


def _largest_files(draw: Draw) -> Scenario:
    places, things = draw.names("place", 3), draw.names("thing", 11)
    sizes = draw.rng.sample(range(40, 9000), len(things))
    files = {}
    for number, (thing, size) in enumerate(zip(things, sizes, strict=True)):
        folder = ["", f"{places[0]}/", f"{places[1]}/", f"{places[1]}/{places[2]}/"][number % 4]
        files[f"data/{folder}{thing}.bin"] = b"x" * size
    count = draw.number(4, 6)
    ranked = sorted(((len(content), name) for name, content in files.items()), reverse=True)[:count]
    return Scenario(
        goal=f"Write largest.txt with the {count} largest files below data/, at any depth, largest first: on each line "
        "the size in bytes, a space, and the path beginning with data/.",
        files=files,
        checks=(text_is("largest.txt", "\n".join(f"{size} {name}" for size, name in ranked)), keeps(files)),
        solution=(
            "bash find data -type f | wc -l",
            f"bash find data -type f -printf '%s %p\\n' | sort -nr | head -n {count} > largest.txt; cat largest.txt",
        ),
        shortcuts=("bash touch largest.txt", f"bash du -a data | sort -nr | head -n {count} > largest.txt"),
    )


def _dangling_links(draw: Draw) -> Scenario:
    things = draw.names("thing", 9)
    real, gone = things[:3], things[3:5]
    links = {
        f"{things[5]}.lnk": f"../store/{real[0]}",
        f"sub/{things[6]}.lnk": f"../../store/{real[1]}",
        f"{things[7]}.lnk": f"../store/{gone[0]}",
        f"sub/{things[8]}.lnk": f"../../store/{gone[1]}",
        "sub/again.lnk": f"../{things[7]}.lnk",
    }
    files = {f"store/{name}": f"{draw.code(name)}\n".encode() for name in real}
    alive = {name: target for name, target in links.items() if any(word in target for word in real)}
    removed = sorted(name for name in links if name not in alive)
    made = "; ".join(f"ln -s {target} links/{name}" for name, target in links.items())
    return Scenario(
        goal="Some of the symbolic links below links/ lead to nothing. Remove those, and write their paths (beginning "
        "with links/) to removed.txt, one per line, sorted. The links that lead somewhere stay as they are.",
        files=files,
        setup=f"mkdir -p links/sub; {made}",
        checks=(
            tree_is("links", alive),
            text_is("removed.txt", "\n".join(f"links/{name}" for name in removed)),
            keeps(files),
        ),
        solution=(
            "bash find links -type l -printf '%p -> %l\\n' | sort",
            "bash find links -xtype l | sort > removed.txt; cat removed.txt",
            "bash xargs rm < removed.txt; find links -type l | sort",
        ),
        shortcuts=(
            "bash find links -type l | sort > removed.txt; rm -r links",
            f"bash echo links/{things[7]}.lnk > removed.txt; rm links/{things[7]}.lnk",
        ),
    )


def _split_by_key(draw: Draw) -> Scenario:
    places, people = draw.names("place", 4), draw.names("person", 8)
    visits = [(draw.rng.choice(places), draw.rng.choice(people)) for _ in range(draw.number(25, 40))]
    visits += [(place, people[0]) for place in places]
    expected = {
        f"{place}.txt": _lines([person for where, person in visits if where == place]) for place in places
    }
    source = _lines([f"{place}\t{person}" for place, person in visits])
    return Scenario(
        goal="Each line of visits.tsv is a place, a tab, and a person. Make a folder places with one file for each "
        "place, named after it with .txt at the end, that holds the persons who visited it, one per line, in the order "
        "of visits.tsv, repetitions included. Nothing else belongs into that folder.",
        files={"visits.tsv": source},
        checks=(tree_is("places", expected), keeps({"visits.tsv": source})),
        solution=(
            "bash head -n 4 visits.tsv; cut -f 1 visits.tsv | sort -u",
            "bash awk -F '\\t' '{ print $2 > (\"places/\" $1 \".txt\") }' visits.tsv",
            "bash mkdir places && awk -F '\\t' '{ print $2 > (\"places/\" $1 \".txt\") }' visits.tsv; wc -l places/*",
        ),
        shortcuts=(
            "bash mkdir places; for p in $(cut -f 1 visits.tsv); do : > places/$p.txt; done",
            "bash mkdir places; sort -u visits.tsv | while read -r p n; do echo $n >> places/$p.txt; done",
        ),
    )


def _handbook_section(draw: Draw) -> Scenario:
    titles = draw.names("thing", 5)
    wanted, number = titles[2], draw.number(2, 4)
    lines, section = [f"Handbook. See also == {wanted} ==."], []
    for title in titles:
        lines.append(f"== {title} ==")
        for paragraph in range(number if title == wanted else 3):
            text = f"The {title}, part {paragraph + 1}: {draw.code(f'{title}{paragraph}')}."
            lines += [text, "" if paragraph % 2 else f"  (== {title} ==)"]
            if title == wanted:
                section += lines[-2:]
    content = "".join(f"{line}\r\n" for line in lines).encode()
    return Scenario(
        goal=f"handbook.txt has Windows line ends. Its sections begin with a line such as == {titles[0]} == and go on to "
        f"the next such line. Write the section {wanted}, without its heading line but with all its other lines in order, "
        "to section.txt, with Unix line ends (no carriage return).",
        files={"handbook.txt": content},
        checks=(text_is("section.txt", "\n".join(section)), keeps({"handbook.txt": content})),
        solution=(
            "bash grep -n '==' handbook.txt | cat -A",
            f"bash awk '/^== .* ==$/ {{ on = $2 == \"{wanted}\"; next }} on' handbook.txt > section.txt; wc -l section.txt",
            f"bash tr -d '\\r' < handbook.txt | awk '/^== .* ==$/ {{ on = $2 == \"{wanted}\"; next }} on' > section.txt; "
            "cat section.txt",
        ),
        shortcuts=("bash touch section.txt", "bash tr -d '\\r' < handbook.txt > section.txt"),
    )


def _todo_index(draw: Draw) -> Scenario:
    owner, other = draw.names("person", 2)
    files, found = {}, []
    for number, service in enumerate(sorted(draw.names("service", 4))):
        path = f"src/{service}/{('main', 'core')[number % 2]}.py"
        lines = []
        for line in range(1, draw.number(14, 22)):
            roll = draw.rng.random()
            text = f"{draw.rng.choice(['check', 'rename', 'test'])} {draw.rng.choice(['limits', 'names', 'inputs'])} {line}"
            if roll < 0.2 or line == 5:
                lines.append(f"value_{line} = {line}  # TODO({owner}): {text}")
                found.append(f"{path}:{line}: {text}")
            elif roll < 0.4:
                lines.append(f"# TODO({other}): ask TODO({owner}) about {text}")
            else:
                lines.append(f"value_{line} = {line}")
        files[path] = _lines(lines)
    return Scenario(
        goal=f"The Python files below src/ have comments such as '# TODO({other}): some text'. Write todo.txt with all "
        f"that are marked with {owner} (that is, in which '# TODO({owner}): ' stands): on each line the path beginning "
        "with src/, a colon, the line number, a colon, a space, and the text after the mark; ordered by path, then by "
        "line number.",
        files=files,
        checks=(text_is("todo.txt", "\n".join(found)), keeps(files)),
        solution=(
            f"bash grep -rn 'TODO({owner})' src | sort -t : -k 1,1 -k 2,2n | head -n 8",
            f"bash grep -rn '# TODO({owner}): ' src | sort -t : -k 1,1 -k 2,2n | sed 's/^\\([^:]*:[0-9]*:\\).*# "
            f"TODO({owner}): /\\1 /' > todo.txt; head -n 5 todo.txt",
        ),
        shortcuts=("bash touch todo.txt", f"bash grep -rn 'TODO({owner})' src > todo.txt"),
    )


def _latin_texts(draw: Draw) -> Scenario:
    words = draw.names("word", 6)
    files, fixed = {}, {}
    for number, word in enumerate(words):
        text = (
            f"{word}: caf\u00e9, na\u00efve, \u00fcber {draw.code(word)}\n"
            if number % 3
            else f"{word} {draw.code(word)}\n"
        )
        files[f"texts/{word}.txt"] = text.encode("latin-1" if number % 2 else "utf-8")
        fixed[f"{word}.txt"] = text.encode()
    return Scenario(
        goal="Some of the files in texts/ are encoded in ISO-8859-1 (Latin-1), the others in UTF-8. Bring all of them to "
        "UTF-8, in place: those that are UTF-8 already must stay as they are, and no other files may be left in the "
        "folder.",
        files=files,
        checks=(tree_is("texts", fixed),),
        solution=(
            "bash for f in texts/*; do iconv -f UTF-8 -t UTF-8 $f > /dev/null 2>&1 || echo $f; done",
            "bash for f in texts/*; do iconv -f UTF-8 -t UTF-8 $f > /dev/null 2>&1 || { iconv -f ISO-8859-1 -t UTF-8 $f "
            "> new && mv new $f; }; done; grep -h : texts/*",
        ),
        shortcuts=(
            "bash for f in texts/*; do iconv -f ISO-8859-1 -t UTF-8 $f > new && mv new $f; done",
            "bash for f in texts/*; do iconv -c -f UTF-8 -t UTF-8 $f > new; mv new $f; done",
        ),
    )


TEMPLATES = (
    Template("log-errors", "files", "train", _log_errors),
    Template("rename-extension", "files", "train", _rename_extension),
    Template("config-key", "files", "train", _config_key),
    Template("unique-lines", "files", "train", _unique_lines),
    Template("permissions", "files", "train", _permissions),
    Template("largest-files", "files", "train", _largest_files),
    Template("dangling-links", "files", "train", _dangling_links),
    Template("split-by-key", "files", "train", _split_by_key),
    Template("handbook-section", "files", "train", _handbook_section),
    Template("todo-index", "files", "held_out", _todo_index),
    Template("latin-texts", "files", "held_out", _latin_texts),
)
"""All tasks of this family."""
