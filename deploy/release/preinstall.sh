#!/bin/sh
# The user, before the files that belong to it.
set -e
if ! getent passwd rshub >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/rshub --no-create-home --shell /usr/sbin/nologin rshub
fi
