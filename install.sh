#!/bin/sh
# install.sh puts abx on this machine and its skills where agents read them.
#
#   curl -fsSL BASE/install.sh | AGBX_CLI_BASE=BASE sh
#
# Nothing is installed before it is verified: the list of checksums against the release key, and every file against
# that list. It asks for no password and edits no shell start-up file.
#
# Options (after `sh -s --` when piped):
#   --with-controller   also install controller, envd and sandbox-init (Linux)
#   --no-skills         install no skills
#   --uninstall         remove what this script installs
#   --help
#
# Environment:
#   AGBX_CLI_BASE       where releases are served; a release's own install.sh knows its address
#   AGBX_CLI_VERSION    install this version instead of the latest, for instance v1.2.3
#   AGBX_BIN_DIR        default ~/.local/bin; --uninstall looks nowhere else, so give it again then
#   AGBX_SKILL_DIR      default ~/.agents/skills; the same
#   AGBX_CLI_PUBLIC_KEY PEM file of the release key; a release's own install.sh carries it
#   AGBX_INSECURE_SKIP_SIGNATURE=1   install without checking who made the release (checksums are still checked)

# Everything is in functions and the last line calls main, in braces: a half-downloaded script does nothing.

# `make release` fills these two in.
release_base=''
release_key=''
self=$0

say() { printf '%s\n' "$*"; }
warn() { printf 'install.sh: %s\n' "$*" >&2; }
die() {
	warn "$1"
	shift
	for line in "$@"; do warn "  $line"; done
	exit 1
}

usage() {
	sed -n '2,/^$/s/^# \{0,1\}//p' "$self" 2>/dev/null | grep . || say "install.sh [--with-controller] [--no-skills] [--uninstall] [--help]"
}

have() { command -v "$1" >/dev/null 2>&1; }

# fetch URL FILE: download to FILE; a failure of any kind leaves no FILE.
fetch() {
	if have curl; then
		curl -fsSL --retry 2 --connect-timeout 20 --speed-limit 1 --speed-time 60 -o "$2" "$1" || { rm -f "$2"; return 1; }
	elif have wget; then
		wget -q -t 2 -T 60 -O "$2" "$1" || { rm -f "$2"; return 1; }
	else
		die "neither curl nor wget is on this machine" "install one of them and run this again"
	fi
}

sha256_of() {
	if have sha256sum; then
		sha256sum "$1" | cut -d' ' -f1
	elif have shasum; then
		shasum -a 256 "$1" | cut -d' ' -f1
	elif have openssl; then
		openssl dgst -sha256 "$1" | sed 's/^.*= *//'
	else
		die "no tool for SHA-256 here (sha256sum, shasum or openssl), so nothing can be verified" \
			"install one of them and run this again; nothing was installed"
	fi
}

platform() {
	os=$(uname -s)
	case $os in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) die "no build for $os" "there are builds for Linux and macOS; on Windows download abx-windows-amd64.exe from the release" ;;
	esac
	arch=$(uname -m)
	case $arch in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) die "no build for processor $arch" "there are builds for amd64 and arm64" ;;
	esac
}

# verify_signature: who made the list of checksums?
verify_signature() {
	if [ "${AGBX_INSECURE_SKIP_SIGNATURE:-}" = 1 ]; then
		warn "WARNING: AGBX_INSECURE_SKIP_SIGNATURE=1: not checking who made this release"
		return
	fi
	have openssl || die "openssl is needed to verify the release's signature" \
		"install it and run this again; nothing was installed"
	key=$work/release.pem
	if [ -n "${AGBX_CLI_PUBLIC_KEY:-}" ]; then
		cp "$AGBX_CLI_PUBLIC_KEY" "$key" 2>/dev/null || die "cannot read AGBX_CLI_PUBLIC_KEY=$AGBX_CLI_PUBLIC_KEY" \
			"it names the PEM file of the release's public key; nothing was installed"
		openssl pkey -pubin -in "$key" -noout >/dev/null 2>&1 || die "AGBX_CLI_PUBLIC_KEY=$AGBX_CLI_PUBLIC_KEY holds no public key" \
			"it names the PEM file of the release's public key, which begins with -----BEGIN PUBLIC KEY-----" "nothing was installed"
	elif [ -n "$release_key" ]; then
		printf '%s\n' "$release_key" >"$key"
	else
		die "this install.sh carries no release key, so the release cannot be verified" \
			"use the install.sh of a release, or name the key's PEM file with AGBX_CLI_PUBLIC_KEY" \
			"AGBX_INSECURE_SKIP_SIGNATURE=1 installs without this check; nothing was installed"
	fi
	fetch "$base/SHA256SUMS.sig" "$work/SHA256SUMS.sig" ||
		die "the release has no signature ($base/SHA256SUMS.sig)" "ask whoever publishes it for a signed one" \
			"AGBX_INSECURE_SKIP_SIGNATURE=1 installs without this check; nothing was installed"
	openssl dgst -sha256 -verify "$key" -signature "$work/SHA256SUMS.sig" "$work/SHA256SUMS" >/dev/null 2>&1 ||
		die "the signature of $base/SHA256SUMS is not by the release key" \
			"the release was tampered with, or another key signed it; nothing was installed"
}

# download NAME: fetch a file of the release and hold it to the list of checksums.
download() {
	want=$(awk -v name="$1" '$2 == name || $2 == "*" name {print $1}' "$work/SHA256SUMS")
	case $want in
	'') die "the release lists no checksum for $1" "nothing was installed" ;;
	*[!0-9a-f]*) die "the release's checksum for $1 is malformed" "nothing was installed" ;;
	esac
	[ ${#want} -eq 64 ] || die "the release's checksum for $1 is malformed" "nothing was installed"
	fetch "$base/$1" "$work/$1" || die "cannot download $base/$1" "nothing was installed; try again"
	got=$(sha256_of "$work/$1") || exit 1
	[ "$got" = "$want" ] || die "checksum mismatch for $1" "want $want" "got  $got" \
		"the download is damaged or was tampered with; nothing was installed"
}

# stage FILE NAME: copy a program beside its place; nothing is replaced yet.
stage() {
	target=$bin_dir/$2
	[ ! -d "$target" ] || die "$target is a folder, so no program can be put there" "choose another folder with AGBX_BIN_DIR" "nothing was installed"
	if cp "$1" "$target.new.$$" && chmod 755 "$target.new.$$"; then return; fi
	die "cannot write $target" "choose another folder with AGBX_BIN_DIR" "nothing was installed"
}

# place NAME: put a staged program into its place in one step.
place() {
	mv -f "$bin_dir/$1.new.$$" "$bin_dir/$1" || die "cannot write $bin_dir/$1" "choose another folder with AGBX_BIN_DIR"
	record "$1"
}

# make_dir DIR VARIABLE: the folder exists and can be written.
make_dir() {
	if mkdir -p "$1" 2>/dev/null && [ -w "$1" ]; then return; fi
	die "cannot write to $1" "choose another folder with $2" "nothing was installed"
}

# install_skills: by the staged abx, so that a refusal comes before anything is replaced.
install_skills() {
	"$bin_dir/abx.new.$$" skills install --dir "$skill_dir" >/dev/null </dev/null ||
		die "the skills could not be written to $skill_dir" \
			"choose another folder with AGBX_SKILL_DIR, or leave them out with --no-skills; no program was installed"
}

# login_file: what a bash that somebody logs in to reads. The first of these that exists hides the others.
login_file() {
	for file in .bash_profile .bash_login; do
		if [ -f "${HOME:-}/$file" ]; then
			say "$file"
			return
		fi
	done
	say .profile
}

path_advice() {
	found=$(command -v abx 2>/dev/null || true)
	case ":$PATH:" in
	*":$bin_dir:"*) ;;
	*)
		say ""
		say "$bin_dir is not on your PATH. For this shell and new ones:"
		line="export PATH=\"$bin_dir:\$PATH\""
		case ${SHELL:-} in
		*/fish) say "  fish_add_path \"$bin_dir\"" ;;
		*/zsh) say "  $line      # and the same line in ~/.zshrc" ;;
		*/bash) say "  $line      # and the same line in ~/.bashrc (terminals) and ~/$(login_file) (logins)" ;;
		*) say "  $line      # and the same line in ~/.profile" ;;
		esac
		;;
	esac
	if [ -n "$found" ] && [ "$found" != "$bin_dir/abx" ]; then
		warn "another abx comes first on the PATH: $found"
		warn "  remove it, or put $bin_dir before its folder"
	fi
}

next_step() {
	say ""
	if [ -z "$controller" ]; then
		say "next: abx context set NAME --endpoint URL --api-key-stdin, then abx agent-context"
		return
	fi
	say "next: controller serves the platform on this machine until Ctrl-C. When it says ready, in another shell:"
	say "  . \"${AGENTBOX_DATA_DIR:-${XDG_DATA_HOME:-${HOME:-}/.local/share}/agentbox}/client.env\""
	say "  abx envs"
}

# remove FILE: one that cannot be removed is named, and the others are removed all the same.
remove() {
	if rm -f "$1" 2>/dev/null; then
		removed="$removed $2"
		return
	fi
	warn "cannot remove $1"
	failed=1
	return 1
}

holds_files() {
	for file in "$1"/* "$1"/.[!.]* "$1"/..?*; do
		if [ -e "$file" ] || [ -L "$file" ]; then return 0; fi
	done
	return 1
}

uninstall() {
	removed=
	failed=
	list=$bin_dir/.agentbox-files
	for name in abx controller envd sandbox-init; do
		if [ -f "$bin_dir/$name" ] && grep -qx "$name" "$list" 2>/dev/null; then
			remove "$bin_dir/$name" "$name" || true
		fi
	done
	# Kept while something of it is left: the next --uninstall reads it.
	if [ -z "$failed" ] && ! rm -f "$list" 2>/dev/null; then
		warn "cannot remove $list"
		failed=1
	fi
	for dir in "$skill_dir"/abx-*; do
		if [ -f "$dir/SKILL.md" ] && grep -q 'agentbox-skill' "$dir/SKILL.md"; then
			remove "$dir/SKILL.md" "${dir##*/}" || continue
			if rmdir "$dir" 2>/dev/null; then continue; fi
			if holds_files "$dir"; then
				warn "left $dir: it holds files that are not ours"
			else
				warn "cannot remove $dir"
				failed=1
			fi
		fi
	done
	if [ -n "$removed" ]; then
		say "removed:$removed"
	elif [ -z "$failed" ]; then
		say "nothing of AgentBox in $bin_dir and $skill_dir"
		say "if it was installed with AGBX_BIN_DIR or AGBX_SKILL_DIR, give them again"
	fi
	say "contexts and keys were left alone: abx kept them in ${XDG_CONFIG_HOME:-~/.config}/abx"
	[ -z "$failed" ] || die "not everything was removed" "run this again as somebody who may write to those folders"
}

record() { grep -qx "$1" "$bin_dir/.agentbox-files" 2>/dev/null || printf '%s\n' "$1" >>"$bin_dir/.agentbox-files"; }

main() {
	set -eu
	# zsh reads POSIX scripts its own way unless told otherwise.
	if [ -n "${ZSH_VERSION:-}" ]; then emulate sh; fi
	controller=
	skills=1
	action=install
	for arg in "$@"; do
		case $arg in
		--with-controller) controller=1 ;;
		--no-skills) skills= ;;
		--uninstall) action=uninstall ;;
		--help | -h) usage; return 0 ;;
		*) die "unknown option $arg" "known: --with-controller --no-skills --uninstall --help" ;;
		esac
	done
	if [ -z "${HOME:-}" ] && { [ -z "${AGBX_BIN_DIR:-}" ] || [ -z "${AGBX_SKILL_DIR:-}" ]; }; then
		die "HOME is not set, so there is no folder to install to" "set it, or both AGBX_BIN_DIR and AGBX_SKILL_DIR"
	fi
	bin_dir=${AGBX_BIN_DIR:-$HOME/.local/bin}
	skill_dir=${AGBX_SKILL_DIR:-$HOME/.agents/skills}
	if [ "$action" = uninstall ]; then
		uninstall
		return 0
	fi

	base=${AGBX_CLI_BASE:-$release_base}
	base=${base%/}
	[ -n "$base" ] || die "no address to install from" \
		"use the install.sh of a release, or name its address: AGBX_CLI_BASE=https://… sh install.sh"
	if [ -n "${AGBX_CLI_VERSION:-}" ]; then
		case $AGBX_CLI_VERSION in
		v[0-9]*) ;;
		*) die "AGBX_CLI_VERSION=$AGBX_CLI_VERSION is not a version" "for instance: AGBX_CLI_VERSION=v1.2.3" "nothing was installed" ;;
		esac
		base=${base%/latest}/$AGBX_CLI_VERSION
	fi
	platform
	if [ -n "$controller" ] && [ "$os" != linux ]; then
		die "--with-controller: the controller runs sandboxes on Linux only" "leave the option out to install abx"
	fi
	make_dir "$bin_dir" AGBX_BIN_DIR
	bin_dir=$(CDPATH='' cd -- "$bin_dir" && pwd)
	[ -z "$skills" ] || make_dir "$skill_dir" AGBX_SKILL_DIR
	work=$(mktemp -d)
	trap 'rm -rf "$work"; for name in abx controller envd sandbox-init; do rm -f "$bin_dir/$name.new.$$"; done' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	fetch "$base/SHA256SUMS" "$work/SHA256SUMS" || die "no release at $base" "is the address right, and the network there?"
	verify_signature
	download VERSION
	version=$(cat "$work/VERSION")
	say "downloading abx $version for $os/$arch from $base"
	if [ -n "${AGBX_CLI_VERSION:-}" ] && [ "$version" != "$AGBX_CLI_VERSION" ]; then
		die "asked for $AGBX_CLI_VERSION, but $base holds $version" "nothing was installed"
	fi
	download "abx-$os-$arch"
	if [ -n "$controller" ]; then
		for name in controller envd sandbox-init; do download "$name-linux-$arch"; done
	fi

	stage "$work/abx-$os-$arch" abx
	if [ -n "$controller" ]; then
		for name in controller envd sandbox-init; do stage "$work/$name-linux-$arch" "$name"; done
	fi
	[ -z "$skills" ] || install_skills
	place abx
	say "installed: $bin_dir/abx $version"
	if [ -n "$controller" ]; then
		for name in controller envd sandbox-init; do place "$name"; done
		say "installed: $bin_dir/controller, with envd and sandbox-init beside it"
	fi
	[ -z "$skills" ] || say "skills:    $skill_dir"
	path_advice
	next_step
}

{ main "$@"; }
