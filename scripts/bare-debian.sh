# shellcheck shell=bash
# A bare Debian in a directory tree, for scripts that show what works on a machine that has nothing.
# To be sourced in the folder of the repository. It needs Debian and root. Each tree is made once
# (about a minute) and kept in the cache of scripts/broker; each run works on a copy.
cache=${DLXCTL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/dlxctl}
self=$PWD/scripts/broker oldest=3.10 # of broker-source.sh
# shellcheck source=scripts/broker-source.sh
. scripts/broker-source.sh

root=        # the copy that enter enters
copies=()    # all of them
entered=     # the process of enter, while it runs
go=          # the folder of Go that the copy has at /usr/local/go; empty is none
inside=/root # where enter begins

# make_bare NAME SUITE PACKAGES makes the tree cache/NAME, under another name first: it is whole or
# not there. PACKAGES are those that it has in addition to the smallest Debian.
make_bare() {
	local bare=$cache/$1 suite=$2 packages=$3 from new
	has debootstrap || { apt_update && apt_install debootstrap; }
	from=$(mirror)
	[ -n "$from" ] || die "apt names no source of packages; set DLXCTL_DEBIAN_MIRROR to the URL of a Debian mirror"
	say "building a bare Debian $suite in $bare (about a minute, once)"
	mkdir -p "$cache"
	new=$(mktemp -d "$bare.new.XXXXXX")
	if ! debootstrap --variant=minbase --include="$packages" "$suite" "$new" "$from" >"$bare.log" 2>&1; then
		tail -n 20 "$bare.log" >&2
		rm -rf "$new"
		die "debootstrap of $suite failed, see $bare.log"
	fi
	rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/*
	chmod 755 "$new"
	mv "$new" "$bare"
}

# can_be_bare ends the script where no bare Debian can be made.
can_be_bare() {
	[ "$(os_id)" = debian ] || die "this needs Debian, to make a bare one"
	[ "$(id -u)" = 0 ] || die "this needs root, to enter a bare Debian; run it as root"
}

# bare_copy NAME SUITE PACKAGES sets root to a new copy of the tree, and connects it to the network.
bare_copy() {
	can_be_bare
	[ -d "$cache/$1" ] || make_bare "$@"
	root=$(mktemp -d "${TMPDIR:-/tmp}/dlxctl-$1.XXXXXX")
	copies+=("$root")
	cp -a "$cache/$1/." "$root"
	connect
}

# remove_copies is for the trap of the script. What was mounted in a copy ended with the processes
# that saw it. unshare ends by SIGKILL alone, and takes with it what runs in the copy.
remove_copies() {
	[ -z "$entered" ] || kill -KILL "$entered" 2>/dev/null || true
	wait
	rm -rf --one-file-system ${copies[@]+"${copies[@]}"}
}

# connect gives the tree this machine's way to the network, which no user has to set up: names,
# proxies, and the authorities that are trusted here.
connect() {
	cp -L /etc/resolv.conf "$root/etc/resolv.conf"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
	apt-config dump | grep -i '^Acquire::.*proxy' >"$root/etc/apt/apt.conf.d/90proxy" || true
	cp -R /usr/local/share/ca-certificates "$root/usr/local/share/"
	mkdir -p "$root/etc/ssl/certs"
	cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
}

# enter COMMAND... runs a command in the copy, as a user would who has just logged in. Its processes
# have a namespace of their own, and end with the command.
enter() {
	local name network=() status
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY GOPROXY GONOSUMDB GOSUMDB GOFLAGS; do
		[ -z "${!name:-}" ] || network+=("$name=${!name}")
	done
	# shellcheck disable=SC2016  # expanded by that shell
	unshare --mount --pid --fork --kill-child --propagation private -- sh -c '
		set -e
		root=$1 go=$2
		shift 2
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		if [ -n "$go" ]; then
			mount --bind "$go" "$root/usr/local/go"
			mount -o remount,bind,ro "$root/usr/local/go"
		fi
		exec chroot "$root" "$@"' enter "$root" "$go" \
		env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin \
		HOME=/root LANG=C.UTF-8 ${network[@]+"${network[@]}"} \
		sh -c 'cd "$0" && exec "$@"' "$inside" "$@" <&0 &
	entered=$!
	wait "$entered" && entered= && return # a signal to the script ends the wait
	status=$?
	entered=
	return $status
}
