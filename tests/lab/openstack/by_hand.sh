# Raises by hand what a cloud's object asks for, as plain processes in the root of the image of its services, up to an image that is uploaded:
# MariaDB and Keystone, then Placement and Glance side by side, with the commands, the numbers of processes and the settings that Windlass has.
#
# Its root is that of the image, which is written to, in a network and among processes of its own.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/tmp
IDENTITY=http://127.0.0.1:5000/v3

serves() {
  until python3 -c "import urllib.request; urllib.request.urlopen('$1', timeout=10)" 2> /dev/null; do sleep 0.2; done
}

serve() {
  uwsgi --http-socket="127.0.0.1:$1" --module="$2" --master --processes=2 --enable-threads --die-on-term --need-app --lazy-apps \
    --buffer-size=65535 "--add-header=Connection: close" --disable-logging > "/tmp/$1.log" 2>&1 &
}

mkdir -p /data /etc/keystone /etc/placement
mariadb-install-db --force --datadir=/data --skip-name-resolve --skip-test-db --auth-root-authentication-method=normal --user=root > /tmp/install.log
mariadbd --no-defaults --datadir=/data --socket=/tmp/mysql.sock --bind-address=127.0.0.1 --skip-name-resolve --character-set-server=utf8mb4 \
  --user=root > /tmp/mariadb.log 2>&1 &
until mariadb --socket=/tmp/mysql.sock -e 'SELECT 1' > /dev/null 2>&1; do sleep 0.2; done
for name in keystone placement glance; do
  mariadb --socket=/tmp/mysql.sock -e "CREATE DATABASE $name; CREATE USER '$name'@'%' IDENTIFIED BY 'secret'; GRANT ALL ON $name.* TO '$name'@'%'"
done

cat > /etc/keystone/keystone.conf <<END
[database]
connection = mysql+pymysql://keystone:secret@127.0.0.1/keystone
[token]
provider = fernet
END
keystone-manage fernet_setup --keystone-user root --keystone-group root
keystone-manage credential_setup --keystone-user root --keystone-group root
keystone-manage db_sync --expand
OS_BOOTSTRAP_PASSWORD=secret keystone-manage bootstrap --bootstrap-region-id=RegionOne --bootstrap-internal-url=$IDENTITY \
  --bootstrap-public-url=$IDENTITY > /tmp/bootstrap.log 2>&1
serve 5000 keystone.wsgi.api:application
serves $IDENTITY
keystone-manage db_sync --contract

export OS_AUTH_URL=$IDENTITY OS_USERNAME=admin OS_PASSWORD=secret OS_PROJECT_NAME=admin OS_USER_DOMAIN_ID=default \
  OS_PROJECT_DOMAIN_ID=default OS_IDENTITY_API_VERSION=3 OS_REGION_NAME=RegionOne
# All in one process: its start takes longest.
seed() {
  echo "project create --or-show service"
  for of in "placement placement 8778" "glance image 9292"; do
    set -- $of
    echo "user create --project service --password secret $1"
    echo "role add --project service --user $1 service"
    echo "service create --name $1 $2"
    echo "endpoint create --region RegionOne $2 internal http://127.0.0.1:$3"
    echo "endpoint create --region RegionOne $2 public http://127.0.0.1:$3"
  done
  echo "role add --project service --user glance reader"
}
seed > /tmp/commands
# How it ends says nothing of the commands; whatever is missing shows at once.
openstack < /tmp/commands > /tmp/seed.log 2>&1 || true

login() {
  cat <<END
[keystone_authtoken]
www_authenticate_uri = $IDENTITY
auth_url = $IDENTITY
auth_type = password
user_domain_id = default
project_domain_id = default
project_name = service
username = $1
password = secret
END
}

placement() {
  { printf '[api]\nauth_strategy = keystone\n[placement_database]\nconnection = mysql+pymysql://placement:secret@127.0.0.1/placement\n'
    login placement; } > /etc/placement/placement.conf
  placement-manage db sync
  placement-manage db online_data_migrations > /dev/null
  serve 8778 placement.wsgi.api:application
  serves http://127.0.0.1:8778/
}

glance() {
  { cat <<END
[DEFAULT]
enabled_backends = files:file
[database]
connection = mysql+pymysql://glance:secret@127.0.0.1/glance
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = /var/lib/glance/images
[os_glance_staging_store]
filesystem_store_datadir = /var/lib/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = /var/lib/glance/tasks
[paste_deploy]
flavor = keystone
END
    login glance; } > /etc/glance/glance-api.conf
  mkdir -p /var/lib/glance
  { glance-manage db expand && glance-manage db migrate && glance-manage db_load_metadefs; } > /tmp/glance.log 2>&1
  serve 9292 glance.wsgi.api:application
  serves http://127.0.0.1:9292/healthcheck
  glance-manage db contract >> /tmp/glance.log 2>&1
}

placement & first=$!
glance & second=$!
wait $first
wait $second
head -c 1048576 /dev/urandom > /tmp/disk
openstack image create --file=/tmp/disk --disk-format=raw --container-format=bare -f value -c status disk
