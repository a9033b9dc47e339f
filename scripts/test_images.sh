#!/usr/bin/env bash
# Make the images that the tests of the docker backend run, out of this machine's own files and packages:
#
#   scripts/test_images.sh [busybox] [tools] [debian]      (default: busybox tools)
#
#   rock-test:busybox   2 MB: one static binary (Debian: apt-get install busybox-static)
#   rock-test:tools     10 MB: this machine's bash, coreutils and setsid with their libraries
#   rock-test:debian    130 MB: minimal Debian (needs root; apt-get install mmdebstrap)
#
# Nothing is pulled. An image that exists is made again only with FORCE=1.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

need() { type -P "$1" || { echo "test_images.sh: $1 is missing; apt-get install $2" >&2; exit 3; }; }

skeleton() { # skeleton FOLDER: what every root file system has
	mkdir -p "$1"/{bin,dev,etc,proc,root,sys,tmp,var}
	chmod 1777 "$1/tmp"
	printf 'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n' >"$1/etc/passwd"
	printf 'root:x:0:\nagent:x:1000:\n' >"$1/etc/group"
	mkdir -p "$1/home/agent"
	chown 1000:1000 "$1/home/agent" 2>/dev/null || true
}

busybox() {
	local root=$work/busybox binary name
	binary=$(need busybox busybox-static)
	skeleton "$root"
	cp "$binary" "$root/bin/busybox"
	for name in $("$binary" --list); do
		[ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
	done
	tar -C "$root" --numeric-owner -c . | docker import -c 'CMD ["sh"]' - rock-test:busybox
}

tools() {
	local root=$work/tools name program library
	skeleton "$root"
	for name in bash cat chmod env find grep head id kill ln ls mkdir mkfifo mv nproc printf ps pwd rm sed seq setsid \
		sleep sort stat sync tail test touch tr true uname wc yes; do
		program=$(type -P "$name") || continue
		cp -L "$program" "$root/bin/$name"
		{ ldd "$program" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
			mkdir -p "$root$(dirname "$library")"
			[ -e "$root$library" ] || cp -L "$library" "$root$library"
		done
	done
	ln -s bash "$root/bin/sh"
	tar -C "$root" --numeric-owner -c . | docker import -c 'CMD ["bash"]' - rock-test:tools
}

debian() {
	local mirror
	need mmdebstrap mmdebstrap >/dev/null
	mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "bookworm" { print $2; exit }')
	mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --customize-hook='rm -rf "$1"/var/lib/apt/lists/*' \
		bookworm - "$mirror" | docker import -c 'CMD ["bash"]' - rock-test:debian
}

[ $# -gt 0 ] || set -- busybox tools
for image; do
	case $image in
	busybox | tools | debian) ;;
	*) echo "test_images.sh: no such image: $image; known: busybox, tools, debian" >&2 && exit 2 ;;
	esac
	if [ -n "${FORCE:-}" ] || ! docker image inspect "rock-test:$image" >/dev/null 2>&1; then
		"$image"
	fi
done
