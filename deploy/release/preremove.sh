#!/bin/sh
# Stops the service on removal (deb: remove, rpm: 0), but not on upgrade.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now rshub.service || true # removal continues anyway
	fi
	;;
esac
