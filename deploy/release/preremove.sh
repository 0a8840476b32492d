#!/bin/sh
# Stops it when it is removed (deb: remove, rpm: 0), not when it is replaced.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now rshub.service || true # it is removed all the same
	fi
	;;
esac
