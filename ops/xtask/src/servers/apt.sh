# Installs packages by apt-get: no question is asked, no service starts, and no
# database cluster is made. Says everything on standard error.
set -eu
exec >&2
export DEBIAN_FRONTEND=noninteractive

made=""
trap 'for file in $made; do rm -f "$file"; done' EXIT
trap 'exit 130' INT TERM HUP

# Puts a file there for the time of the installation, unless there is one.
put() {
    if [ ! -e "$1" ]; then
        mkdir -p "$(dirname "$1")"
        made="$made $1"
        printf '%s\n' "$3" >"$1"
        chmod "$2" "$1"
    fi
}

put /usr/sbin/policy-rc.d 755 '#!/bin/sh
exit 101'
put /etc/postgresql-common/createcluster.d/countersign.conf 644 'create_main_cluster = false'

# Without new lists the old ones may still do.
apt-get -q -o Acquire::Retries=3 update || echo "apt-get update failed, going on"
apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 \
    install --no-install-recommends "$@"
