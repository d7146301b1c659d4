set -e
mkdir /repo
cp /setup/stats.py /repo/
cd /repo
git config --global user.name agent
git config --global user.email agent@example.com
git config --global --add safe.directory /repo
git init -q
git add .
git commit -q -m "A few statistics"
git tag base
