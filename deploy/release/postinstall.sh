#!/bin/sh
# Does not enable or start the service, which must be configured first. Restarts a running
# one with the new program; its followers resume from their cursors.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart rshub.service
fi
