#!/bin/sh
# Installs dlxctl @VERSION@, after it has checked the SHA-256 sum of the archive:
#
#   curl -fsSL https://github.com/dlxctl/dlxctl/releases/latest/download/install.sh | sh
#
# Options, behind "sh -s --":
#   --dir DIR    the folder for the program (default /usr/local/bin)
#   --from URL   where the archives and SHA256SUMS are, for a mirror (default the release)
#
# It writes DIR/dlxctl and nothing else. To remove dlxctl, delete that file.
set -eu

version='@VERSION@'
dir=/usr/local/bin
from=https://github.com/dlxctl/dlxctl/releases/download/v$version

die() {
	echo "install.sh: $*" >&2
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# archive prints the name of the archive for this machine.
archive() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	MINGW* | MSYS* | CYGWIN* | Windows*) die "on Windows, take the zip file from $from" ;;
	*) die "there is no dlxctl for the system $(uname -s); build it with Go: go install github.com/dlxctl/dlxctl@latest" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) machine=amd64 ;;
	aarch64 | arm64) machine=arm64 ;;
	*) die "there is no dlxctl for the processor $(uname -m); build it with Go: go install github.com/dlxctl/dlxctl@latest" ;;
	esac
	echo "dlxctl_${version}_${system}_$machine.tar.gz"
}

# get NAME downloads a file of the release into the temporary folder.
get() {
	if has curl; then
		curl -fsSL --retry 2 -o "$work/$1" "$from/$1"
	elif has wget; then
		wget -q -O "$work/$1" "$from/$1"
	else
		die "needs curl or wget"
	fi || die "cannot download $from/$1"
}

# check NAME compares a file with its line in SHA256SUMS.
check() {
	want=$(awk -v name="$1" '$2 == name { print $1 }' "$work/SHA256SUMS")
	[ -n "$want" ] || die "SHA256SUMS of $from does not name $1; nothing was installed"
	if has sha256sum; then
		got=$(sha256sum "$work/$1")
	elif has shasum; then
		got=$(shasum -a 256 "$work/$1")
	else
		die "needs sha256sum or shasum"
	fi
	[ "${got%% *}" = "$want" ] || die "the SHA-256 sum of $1 is ${got%% *}, and SHA256SUMS has $want; nothing was installed"
}

# main is called by the last line: a download that ends early runs nothing.
main() {
	while [ $# -gt 0 ]; do
		case $1 in
		--dir | --from) [ $# -ge 2 ] || die "$1 needs a value" ;;
		*) die "there is no option $1; the options are --dir DIR and --from URL" ;;
		esac
		case $1 in
		--dir) dir=$2 ;;
		--from) from=${2%/} ;;
		esac
		shift 2
	done
	name=$(archive)
	if ! mkdir -p "$dir" 2>/dev/null || [ ! -w "$dir" ]; then
		die "cannot write to $dir; choose a folder with --dir, such as --dir \$HOME/.local/bin, or run it as root"
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work" "$dir/.dlxctl.$$"' EXIT
	trap 'exit 130' INT TERM
	get SHA256SUMS
	get "$name"
	check "$name"
	tar -xzf "$work/$name" -C "$work" "${name%.tar.gz}/dlxctl"
	# Renamed in its folder: a dlxctl that runs goes on, and none is ever half there.
	cp "$work/${name%.tar.gz}/dlxctl" "$dir/.dlxctl.$$"
	chmod 755 "$dir/.dlxctl.$$"
	"$dir/.dlxctl.$$" version >/dev/null || die "$name does not run on this machine; nothing was installed"
	mv -f "$dir/.dlxctl.$$" "$dir/dlxctl"
	echo "installed $("$dir/dlxctl" version) as $dir/dlxctl"
	case :$PATH: in
	*":$dir:"*) ;;
	*) echo "$dir is not in your PATH: export PATH=\"$dir:\$PATH\"" ;;
	esac
}

main "$@"
