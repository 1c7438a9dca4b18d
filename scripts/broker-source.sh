# shellcheck shell=bash
# Where scripts/broker gets RabbitMQ from: what is installed, Docker, apt, or a
# directory tree of another Debian release. To be sourced; wants self, cache and
# oldest set.
: "${self:?}" "${cache:?}" "${oldest:?}"

say() { echo "broker: $*" >&2; }

die() {
	say "$@"
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# --- root ---------------------------------------------------------------------

# can_root tells whether as_root would work.
can_root() {
	[ "$(id -u)" = 0 ] || { has sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# again runs scripts/broker as root with the same cache.
again() { sudo -- env DLXCTL_CACHE="$cache" DLXCTL_DEBIAN_MIRROR="${DLXCTL_DEBIAN_MIRROR:-}" "$self" "$@"; }

# --- versions -----------------------------------------------------------------

# fits LINE VERSION: is VERSION at least LINE, and of the same major number? An
# empty LINE is any version that dlxctl supports.
fits() {
	local want=${1:-$oldest} got=$2
	local wmajor=${want%%.*} wminor=${want#*.} gmajor=${got%%.*} gminor=${got#*.}
	gminor=${gminor%%[!0-9]*}
	case $gmajor in '' | *[!0-9]*) return 1 ;; esac
	if [ "$gmajor" -ne "$wmajor" ]; then
		[ -z "$1" ] && [ "$gmajor" -gt "$wmajor" ]
	else
		[ "${gminor:-0}" -ge "$wminor" ]
	fi
}

# suite_of LINE: the Debian release that has it.
suite_of() {
	case ${1:-$oldest} in
	3.10) echo bookworm ;;
	4.0) echo trixie ;;
	4.3) echo forky ;;
	esac
}

# image_of LINE: the official image that has it.
image_of() {
	case ${1:-4.3} in
	3.10) echo rabbitmq:3.13-management ;;
	4.0) echo rabbitmq:4.0-management ;;
	4.3) echo rabbitmq:4-management ;;
	esac
}

# server_in SBIN...: prints "VERSION SBIN" of the first of these directories
# which holds a server proper, and not the wrapper of a package that changes
# user and directory.
server_in() {
	local sbin plugin
	for sbin in "$@"; do
		[ -x "$sbin/rabbitmq-server" ] || continue
		for plugin in "$sbin"/../plugins/rabbit-[0-9]*; do
			[ -e "$plugin" ] || continue
			plugin=$(basename "$plugin" .ez)
			echo "${plugin#rabbit-} $sbin"
			return
		done
	done
	return 1
}

# installed LINE prints an installed server that fits, as provide does.
installed() {
	local found inpath=/nowhere
	if has rabbitmq-server; then
		inpath=$(command -v rabbitmq-server)
		inpath=$(dirname "$(readlink -f "$inpath" 2>/dev/null || echo "$inpath")")
	fi
	found=$(server_in /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin "$inpath" /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin) || return 1
	fits "$1" "${found%% *}" && has epmd && echo "installed|${found%% *}|${found#* }||"
}

docker_answers() {
	has docker || return 1
	if has timeout; then timeout 10 docker info >/dev/null 2>&1; else docker info >/dev/null 2>&1; fi
}

# --- installation -------------------------------------------------------------

os_id() (
	[ -r /etc/os-release ] || return 0
	# shellcheck disable=SC1091  # of the machine
	. /etc/os-release
	echo "${ID:-}"
)

# apt_update refreshes the package lists, once per run of this script.
apt_updated=
apt_update() {
	[ -z "$apt_updated" ] || return 0
	say "apt-get update"
	as_root apt-get update -q >&2 || say "apt-get update failed; trying with the lists there are"
	apt_updated=yes
}

# apt_install PACKAGE... installs packages without starting what they bring: a
# machine that wants tests has not asked for a broker on port 5672.
apt_install() {
	local policy=/usr/sbin/policy-rc.d status=0
	say "apt-get install $*"
	if [ -e $policy ]; then policy=; else
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
		as_root chmod 755 $policy
	fi
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2 || status=$?
	[ -z "$policy" ] || as_root rm -f "$policy"
	return $status
}

# apt_has LINE: does apt offer a server that fits?
apt_has() {
	local version
	version=$(apt-cache policy rabbitmq-server 2>/dev/null | sed -n 's/^ *Candidate: *//p')
	fits "$1" "${version#*:}"
}

# mirror prints where apt gets the main packages of this release from.
mirror() {
	[ -z "${DLXCTL_DEBIAN_MIRROR:-}" ] || { echo "$DLXCTL_DEBIAN_MIRROR"; return; }
	local codename
	# shellcheck disable=SC1091  # of the machine
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
	# shellcheck disable=SC2016  # apt expands these
	apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		awk -v name="$codename" '$2 == "main" && ($1 == name || first == "") { if ($1 == name) { print $3; done = 1; exit } first = $3 }
			END { if (!done && first != "") print first }'
}

# tree LINE prints the directory tree of the Debian release that has LINE, and
# makes it if need be. It is built under another name and then renamed, so a
# tree is whole or not there.
tree() {
	local suite root from script new
	suite=$(suite_of "$1")
	root=$cache/$suite
	if [ ! -d "$root" ]; then
		has debootstrap || apt_install debootstrap
		from=$(mirror)
		[ -n "$from" ] || die "apt names no source of packages; set DLXCTL_DEBIAN_MIRROR to the URL of a Debian mirror"
		say "building a tree of Debian $suite in $root (about a minute, once)"
		# Those who were here before us and died left their trees behind.
		rm -rf "$root".new.*
		new=$(mktemp -d "$root.new.XXXXXX")
		# An older debootstrap does not know the younger releases; all are built like sid.
		script=/usr/share/debootstrap/scripts/$suite
		[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
		if ! debootstrap --variant=minbase --include=rabbitmq-server,ca-certificates "$suite" "$new" "$from" "$script" >"$root.log" 2>&1 9>&-; then
			tail -n 20 "$root.log" >&2
			rm -rf "$new"
			die "debootstrap of $suite failed, see $root.log"
		fi
		# Without this file a node hangs at boot, in silence.
		echo '127.0.0.1 localhost' >"$new/etc/hosts"
		rm -rf "$new"/var/cache/apt/* "$new"/var/lib/apt/lists/* "$new"/usr/share/{doc,man,locale,info}/*
		chmod 755 "$new"
		mv "$new" "$root" || die "cannot rename $new to $root"
		say "built $root"
	fi
	echo "$root"
}

# provide LINE prints what serves LINE, installing it if need be, as
# KIND|VERSION|SBIN|ROOT|IMAGE: "installed" has VERSION and SBIN, "tree" has ROOT
# too, "docker" has IMAGE.
provide() {
	local line=$1
	installed "$line" && return
	if docker_answers; then
		echo "docker||||$(image_of "$line")"
		return
	fi
	{ has apt-get && can_root; } || die "no RabbitMQ ${line:-from $oldest on} here, and no way to get it: install rabbitmq-server (the management plugin comes with it), or start Docker, or run this as root on Debian or Ubuntu"
	if [ "$(id -u)" != 0 ]; then
		again install "$line"
		return
	fi
	# One at a time: apt stands no company, and a second caller finds what the
	# first has made. The lock goes with this process.
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	installed "$line" || from_apt "$line" || from_tree "$line" ||
		die "apt has no RabbitMQ ${line:-from $oldest on} for this release; install Docker, or set DLXCTL_DEBIAN_MIRROR to the URL of a Debian mirror"
	exec 9>&-
}

# from_apt LINE installs the package of this release, if it fits. It leaves an
# installed one of another version alone.
from_apt() {
	[ ! -x /usr/sbin/rabbitmq-server ] || return 1
	if [ -n "$1" ] && [ -d "$cache/$(suite_of "$1")" ]; then return 1; fi
	apt_update
	apt_has "$1" || return 1
	apt_install rabbitmq-server || die "apt-get could not install rabbitmq-server, see above"
	installed "$1" || die "rabbitmq-server was installed and yet is not there; see the output of apt-get above"
}

# from_tree LINE makes a tree of the Debian release that has LINE.
from_tree() {
	[ "$(os_id)" = debian ] || [ -n "${DLXCTL_DEBIAN_MIRROR:-}" ] || return 1
	local root found
	root=$(tree "$1") || exit 1
	found=$(server_in "$root"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin) || die "no rabbitmq-server in $root; delete that directory and run this again"
	echo "tree|${found%% *}|${found#* "$root"}|$root|"
}
