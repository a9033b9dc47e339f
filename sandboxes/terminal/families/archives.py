"""Archives: pack, unpack, pick, convert, verify, join, update and restore. Only what tar, gzip and Python read."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping

from sandboxes.terminal.checks import archive_holds, keeps, names_are, text_is, tree_is
from sandboxes.terminal.scenario import Scenario, Template
from sandboxes.terminal.words import Draw

__all__ = ["TEMPLATES"]

_TIME = 1_709_629_200
"""2024-03-05 09:00 UTC: equal files make equal archives."""


def _tar(files: Mapping[str, bytes], *, packed: bool = False) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            item = tarfile.TarInfo(name)
            item.size, item.mtime, item.mode = len(content), _TIME, 0o644
            archive.addfile(item, io.BytesIO(content))
    return gzip.compress(made.getvalue(), mtime=0) if packed else made.getvalue()


def _zip(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 3, 5, 9, 0, 0)), content)
    return made.getvalue()


def _text(draw: Draw, name: str) -> bytes:
    return f"{name}: {draw.code(name)}\n".encode()


def _pack_project(draw: Draw) -> Scenario:
    project, *words = draw.name("service"), *draw.names("word", 7)
    inside = [
        f"{words[0]}.txt",
        f"docs/{words[1]}.md",
        f"docs/cache/{words[2]}.md",
        f"src/.{words[3]}",
        f"src/{words[4]}.tmp",
        f"cache/{words[5]}.dat",
        f"cache/deep/{words[6]}.dat",
    ]
    files = {f"{project}/{name}": _text(draw, name) for name in inside}
    packed = {
        name: content
        for name, content in files.items()
        if not name.endswith(".tmp") and not name.startswith(f"{project}/cache/")
    }
    return Scenario(
        goal=f"Pack the folder {project} into {project}.tar.gz, so that the paths in the archive begin with {project}/. "
        f"Hidden files belong in, but no file whose name ends in .tmp, and nothing of the folder {project}/cache (another "
        "folder that is called cache belongs in). The folder itself stays as it is.",
        files=files,
        checks=(archive_holds(f"{project}.tar.gz", "tar.gz", packed), keeps(files)),
        solution=(
            f"bash find {project} -type f | sort",
            f"bash tar -czf {project}.tar.gz --exclude='*.tmp' --exclude={project}/cache {project}; tar -tzf "
            f"{project}.tar.gz | sort",
        ),
        shortcuts=(
            f"bash tar -czf {project}.tar.gz {project}",
            f"bash tar -czf {project}.tar.gz --exclude='*.tmp' --exclude=cache {project}",
            f"bash touch {project}.tar.gz",
        ),
    )


def _nested_archive(draw: Draw) -> Scenario:
    wanted, boxes, words = draw.name("thing"), draw.names("place", 4), draw.names("word", 8)
    secret = draw.code("secret")
    hides = draw.number(0, 3)
    outer = {"README": b"One of the boxes holds it.\n"}
    for number, box in enumerate(boxes):
        inner = {
            f"{words[2 * number]}.txt": _text(draw, box),
            f"{words[2 * number + 1]}/{wanted}.old": b"no\n",
        }
        if number == hides:
            inner[f"{words[2 * number]}/{wanted}.txt"] = f"{secret}\n".encode()
        outer[f"boxes/{box}.tar.gz"] = _tar(inner, packed=True)
    files = {"delivery.tar.gz": _tar(outer, packed=True)}
    return Scenario(
        goal=f"In delivery.tar.gz there are further archives, and in one of them, in some folder, is a file {wanted}.txt. "
        "Write its content to found.txt.",
        files=files,
        checks=(text_is("found.txt", secret), keeps(files)),
        solution=(
            "bash tar -tzf delivery.tar.gz | sort",
            "bash mkdir ~/out && tar -xzf delivery.tar.gz -C ~/out && for a in ~/out/boxes/*; do tar -tzf $a | "
            f"grep {wanted}.txt; done",
            f"bash for a in ~/out/boxes/*; do tar -xzf $a -C ~/out; done; find ~/out -name {wanted}.txt -exec "
            "cat {} + > found.txt; cat found.txt",
        ),
        shortcuts=("bash echo no > found.txt", "bash tar -xzOf delivery.tar.gz README > found.txt"),
    )


def _manifest(draw: Draw) -> Scenario:
    folders, words = draw.names("place", 3), draw.names("word", 12)
    stored = {f"{folders[n % 3]}/{word}.txt": _text(draw, word) for n, word in enumerate(words[:9])}
    picked = dict(draw.rng.sample(sorted(stored.items()), 4))
    missing = [f"{folders[n]}/{word}.txt" for n, word in enumerate(words[9:11])]
    wanted = [*picked, *missing]
    draw.rng.shuffle(wanted)
    files = {
        "store.tar.gz": _tar(stored, packed=True),
        "manifest.txt": "".join(f"{w}\n" for w in wanted).encode(),
    }
    return Scenario(
        goal="Extract from store.tar.gz only the files whose paths manifest.txt lists, one per line, into a new folder "
        "picked, with their paths (so that picked/ is followed by the path of the list). Some listed paths are not in "
        "the archive: write those to missing.txt, one per line, sorted.",
        files=files,
        checks=(tree_is("picked", picked), text_is("missing.txt", "\n".join(sorted(missing))), keeps(files)),
        solution=(
            "bash tar -xzf store.tar.gz -C picked -T manifest.txt",
            "bash mkdir picked; tar -xzf store.tar.gz -C picked -T manifest.txt 2> /dev/null; find picked -type f | sort",
            "bash tar -tzf store.tar.gz | sort > ~/have; sort manifest.txt | comm -23 - ~/have > missing.txt; cat "
            "missing.txt",
        ),
        shortcuts=(
            "bash mkdir picked; tar -xzf store.tar.gz -C picked; touch missing.txt",
            "bash cp manifest.txt missing.txt; mkdir picked",
        ),
    )


def _zip_to_tar(draw: Draw) -> Scenario:
    name, words, folder = draw.name("thing"), draw.names("word", 6), draw.name("place")
    inside = {
        f"{folder}/{word}.txt" if n % 2 else f"{word}.txt": _text(draw, word) for n, word in enumerate(words)
    }
    files = {f"{name}.zip": _zip(inside)}
    return Scenario(
        goal=f"Make {name}.tar.gz, a tar archive packed with gzip, with the same files under the same paths as {name}.zip "
        "has (nothing put in front of the paths, and no others). Keep the zip file. The program unzip may be absent, but "
        "Python can read such files.",
        files=files,
        checks=(archive_holds(f"{name}.tar.gz", "tar.gz", inside), keeps(files)),
        solution=(
            f"bash tar -tzf {name}.zip",
            f"bash python3 -m zipfile -e {name}.zip ~/unpacked && tar -czf {name}.tar.gz -C ~/unpacked .; tar -tzf "
            f"{name}.tar.gz | grep -v '/$' | sort",
        ),
        shortcuts=(f"bash cp {name}.zip {name}.tar.gz", f"bash tar -czf {name}.tar.gz {name}.zip"),
    )


def _corrupt_logs(draw: Draw) -> Scenario:
    services = sorted(draw.names("service", 6))
    broken = set(draw.rng.sample(services[1:], 2))
    files, good = {}, []
    for number, service in enumerate(services):
        text = "".join(f"{service} {line} {draw.code(f'{service}{line}')}\n" for line in range(12))
        packed = gzip.compress(text.encode(), mtime=0)
        if service in broken:
            packed = packed[:-9] if number % 2 else packed[:-8] + b"\1\2\3\4" + packed[-4:]
        else:
            good.append(text)
        files[f"logs/{service}.log.gz"] = packed
    return Scenario(
        goal="Some of the gzip files in logs/ are damaged (cut short, or with a wrong checksum). Write their names "
        "without the folder to bad.txt, one per line, sorted. Write the unpacked contents of all the others, in "
        "alphabetical order of their names, one after the other to all.log. Change nothing in logs/.",
        files=files,
        checks=(
            text_is("bad.txt", "\n".join(f"{service}.log.gz" for service in sorted(broken))),
            text_is("all.log", "".join(good)),
            keeps(files),
        ),
        solution=(
            "bash zcat logs/*.gz > all.log",
            "bash for f in logs/*.gz; do gzip -t $f 2> /dev/null || basename $f; done > bad.txt; cat bad.txt",
            "bash for f in logs/*.gz; do gzip -t $f 2> /dev/null && zcat $f; done > all.log; wc -l all.log",
        ),
        shortcuts=(
            "bash zcat logs/*.gz > all.log 2> /dev/null; touch bad.txt",
            "bash ls logs > bad.txt; : > all.log",
        ),
    )


def _split_parts(draw: Draw) -> Scenario:
    name, words = draw.name("thing"), draw.names("word", 5)
    inside = {f"{word}.txt": _text(draw, word) * 20 for word in words}
    whole = _tar(inside, packed=True)
    size = len(whole) // 4 + 1
    parts = [whole[start : start + size] for start in range(0, len(whole), size)]
    twice = draw.number(1, 2)
    files = {f"parts/{name}.{number}": part for number, part in enumerate(parts, 1)}
    spoilt = bytes(255 - byte for byte in parts[twice - 1])
    right = f"parts/{name}.{twice}"
    files[f"{right}.copy"] = files[right]
    if draw.number(0, 1):
        files[right] = spoilt
    else:
        files[f"{right}.copy"] = spoilt
    files[f"{name}.sha256"] = f"{hashlib.sha256(whole).hexdigest()}  {name}.tar.gz\n".encode()
    tries = (
        f"for second in {name}.{twice} {name}.{twice}.copy; do (cd parts; cat "
        + " ".join(
            "$second" if number == twice else f"{name}.{number}" for number in range(1, len(parts) + 1)
        )
        + f") > {name}.tar.gz; sha256sum -c {name}.sha256 2> /dev/null && break; done"
    )
    return Scenario(
        goal=f"{name}.tar.gz was cut into the numbered files in parts/. Of one part there are two versions (one is called "
        f".copy), and only one of them is right. Put {name}.tar.gz together again so that it has the checksum in "
        f"{name}.sha256, and unpack it into a new folder {name}.",
        files=files,
        checks=(archive_holds(f"{name}.tar.gz", "tar.gz", inside), tree_is(name, inside), keeps(files)),
        solution=(
            f"bash ls parts; cat {name}.sha256",
            f"bash {tries}",
            f"bash mkdir {name} && tar -xzf {name}.tar.gz -C {name}; ls {name}",
        ),
        shortcuts=(
            f"bash cat parts/* > {name}.tar.gz; mkdir {name}; tar -xzf {name}.tar.gz -C {name}",
            f"bash mkdir {name}; touch {name}.tar.gz",
        ),
    )


def _tampered_files(draw: Draw) -> Scenario:
    words, folder = sorted(draw.names("word", 9)), draw.name("place")
    original = {f"{folder}/{word}.txt": _text(draw, word) for word in words}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in original.items())
    odd = draw.rng.sample(sorted(original), 4)
    changed, missing = sorted(odd[:2]), sorted(odd[2:])
    files = {name: content for name, content in original.items() if name not in missing}
    files |= {name: original[name].replace(b": ", b":\t") for name in changed}
    files[f"{folder}/extra.txt"] = b"not in the list\n"
    files["SHA256SUMS"] = sums.encode()
    return Scenario(
        goal="SHA256SUMS lists the checksums of files as they should be. Write changed.txt with the paths of those files "
        "that are there with another content, and missing.txt with the paths of those that are not there; each one path "
        "per line, sorted.",
        files=files,
        checks=(
            text_is("changed.txt", "\n".join(changed)),
            text_is("missing.txt", "\n".join(missing)),
            keeps(files),
        ),
        solution=(
            "bash sha256sum -c SHA256SUMS",
            "bash sha256sum -c SHA256SUMS 2> /dev/null | sed -n 's/: FAILED$//p' | sort > changed.txt; sha256sum -c "
            "SHA256SUMS 2> /dev/null | sed -n 's/: FAILED open or read$//p' | sort > missing.txt; cat changed.txt "
            "missing.txt",
        ),
        shortcuts=(
            "bash touch changed.txt missing.txt",
            "bash sha256sum -c SHA256SUMS 2> /dev/null | grep FAILED | cut -d : -f 1 | sort | tee changed.txt > missing.txt",
        ),
    )


def _update_bundle(draw: Draw) -> Scenario:
    service, words = draw.name("service"), draw.names("word", 5)
    inside = {
        f"conf/{service}.conf": b"level = 1\n",
        f"conf/{words[0]}.conf": _text(draw, words[0]),
        f"notes/{words[1]}.txt": _text(draw, words[1]),
        f"notes/{words[2]}.txt": _text(draw, words[2]),
        f"{words[3]}.txt": _text(draw, words[3]),
    }
    new = f"level = {draw.number(2, 9)}\ncode = {draw.code('new')}\n".encode()
    updated = {name: content for name, content in inside.items() if words[1] not in name}
    updated[f"conf/{service}.conf"] = new
    files = {"bundle.tar": _tar(inside), f"{service}.conf": new}
    return Scenario(
        goal=f"Change the archive bundle.tar (not compressed, and it stays so): its file conf/{service}.conf gets the "
        f"content of {service}.conf from this folder, its file notes/{words[1]}.txt goes away, and everything else in it "
        "stays.",
        files=files,
        checks=(archive_holds("bundle.tar", "tar", updated), keeps({f"{service}.conf": new})),
        solution=(
            "bash tar -tvf bundle.tar",
            f"bash mkdir ~/b && tar -xf bundle.tar -C ~/b && cp {service}.conf ~/b/conf/ && rm "
            f"~/b/notes/{words[1]}.txt && (cd ~/b && tar -cf - *) > bundle.tar; tar -tf bundle.tar | sort",
        ),
        shortcuts=(
            f"bash tar -rf bundle.tar {service}.conf; tar --delete -f bundle.tar notes/{words[1]}.txt",
            f"bash mkdir conf; cp {service}.conf conf; tar -cf bundle.tar conf",
        ),
    )


def _wrong_endings(draw: Draw) -> Scenario:
    words = draw.names("thing", 7)
    files, right = {}, {}
    kinds = ["tar", "zip", "tar.gz"] * 2 + [draw.rng.choice(["tar", "zip"])]
    draw.rng.shuffle(kinds)
    for word, kind in zip(words, kinds, strict=True):
        inside = {f"{word}.txt": _text(draw, word)}
        content = {"tar": _tar(inside), "zip": _zip(inside), "tar.gz": _tar(inside, packed=True)}[kind]
        files[f"downloads/{word}.tar.gz"], right[f"{word}.{kind}"] = content, content
    return Scenario(
        goal="All files in downloads/ are called .tar.gz, but some are plain tar archives (not packed), and some are zip "
        "files. Rename those to what they are: .tar or .zip in place of .tar.gz. The right ones keep their names, and no "
        "content changes.",
        files=files,
        checks=(tree_is("downloads", right),),
        solution=(
            "bash for f in downloads/*; do tar -xzf $f -C ~ || echo $f; done 2>&1 | grep ^downloads",
            'bash cd downloads; for f in *; do if [ "$(head -c 2 $f)" = PK ]; then mv $f ${f%.tar.gz}.zip; '
            "elif ! gzip -t $f 2> /dev/null; then mv $f ${f%.gz}; fi; done; cd ..; ls downloads",
        ),
        shortcuts=(
            "bash cd downloads; for f in *; do mv $f ${f%.gz}; done",
            "bash cd downloads; for f in *; do gzip -t $f || mv $f ${f%.gz}; done",
        ),
    )


def _latest_backup(draw: Draw) -> Scenario:
    words = draw.names("word", 6)
    days = sorted(draw.rng.sample(range(1, 29), 4))
    newest: dict[str, bytes] = {}
    files = {}
    for number, day in enumerate(days):
        here = {
            f"{word}.txt": f"{word} of day {day}: {draw.code(f'{word}{day}')}\n".encode()
            for n, word in enumerate(words)
            if (n + number) % 3 or (number == 0 and n < 3)
        }
        newest |= here
        files[f"backups/2024-02-{day:02}.tar.gz"] = _tar(here, packed=True)
    absent = f"{words[draw.rng.choice([0, 3])]}.txt"  # which the latest archive does not have
    wanted = sorted([absent, *draw.rng.sample(sorted(newest.keys() - {absent}), 3)])
    files["wanted.txt"] = "".join(f"{name}\n" for name in wanted).encode()
    return Scenario(
        goal="backups/ holds an archive for each of several days, named after the day; not every archive has every file. "
        "For each file named in wanted.txt, put its version from the latest archive that has it into a new folder "
        "restored. Nothing else belongs there.",
        files=files,
        checks=(tree_is("restored", {name: newest[name] for name in wanted}), keeps(files)),
        solution=(
            "bash cat wanted.txt; for a in backups/*; do echo $a: $(tar -tzf $a); done",
            "bash mkdir restored; for a in backups/*; do tar -xzf $a -C restored -T wanted.txt; done 2> /dev/null; cat "
            "restored/*",
        ),
        shortcuts=(
            "bash mkdir restored; tar -xzf $(ls -r backups/* | head -n 1) -C restored",
            "bash mkdir restored; cd restored; xargs touch < ../wanted.txt",
        ),
    )


def _rotate_logs(draw: Draw) -> Scenario:
    service = draw.name("service")
    days = sorted(draw.rng.sample(range(1, 29), 9))
    oldest, limit = days[2], days[6]
    files, packed, plain = {}, {}, {}
    for day in days[:4]:
        text = f"{service} day {day}: {draw.code(str(day))}\n".encode()
        files[f"logs/{service}-2024-02-{day:02}.log.gz"] = gzip.compress(text, mtime=0)
        if day >= oldest:
            packed[f"{service}-2024-02-{day:02}.log.gz"] = text
    for day in days[4:]:
        text = f"{service} day {day}: {draw.code(str(day))}\n".encode()
        files[f"logs/{service}-2024-02-{day:02}.log"] = text
        if day < limit:
            packed[f"{service}-2024-02-{day:02}.log.gz"] = text
        else:
            plain[f"{service}-2024-02-{day:02}.log"] = text
    files["logs/README"] = plain["README"] = b"one file a day\n"
    cut, start = f"{service}-2024-02-{limit:02}", f"{service}-2024-02-{oldest:02}"
    return Scenario(
        goal="Tidy up logs/, whose files carry their day in the name. Delete the files of days before "
        f"2024-02-{oldest:02}. Of the others, pack each that is not packed yet and is of a day before 2024-02-{limit:02} "
        "with gzip (the name gets .gz, the plain file goes). All other files stay as they are.",
        files=files,
        checks=(
            names_are("logs", [*packed, *plain]),
            *(
                archive_holds(f"logs/{name}", "gz", {"": text}, guard=f"logs/{name}" in files)
                for name, text in packed.items()
            ),
            keeps({f"logs/{name}": content for name, content in plain.items()}),
        ),
        solution=(
            "bash ls logs",
            f"bash cd logs; for f in {service}-*; do if [[ $f < {start} ]]; then rm $f; elif [[ $f == *.log && $f < {cut} "
            "]]; then gzip $f; fi; done; cd ..; ls logs",
        ),
        shortcuts=(
            "bash gzip logs/*.log",
            f"bash cd logs; for f in {service}-*.log; do [[ $f < {cut} ]] && mv $f $f.gz; [[ $f < {start} ]] && rm $f*; "
            "done",
        ),
    )


TEMPLATES = (
    Template("pack-project", "archives", "train", _pack_project),
    Template("nested-archive", "archives", "train", _nested_archive),
    Template("manifest", "archives", "train", _manifest),
    Template("zip-to-tar", "archives", "train", _zip_to_tar),
    Template("corrupt-logs", "archives", "train", _corrupt_logs),
    Template("split-parts", "archives", "train", _split_parts),
    Template("tampered-files", "archives", "train", _tampered_files),
    Template("update-bundle", "archives", "train", _update_bundle),
    Template("wrong-endings", "archives", "train", _wrong_endings),
    Template("latest-backup", "archives", "held_out", _latest_backup),
    Template("rotate-logs", "archives", "held_out", _rotate_logs),
)
"""All tasks of this family."""
