#!/bin/sh
# Creates the user before the files that it owns.
set -e
if ! getent passwd rshub >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/rshub --no-create-home --shell /usr/sbin/nologin rshub
fi
