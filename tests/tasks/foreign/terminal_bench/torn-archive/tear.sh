set -e
mkdir -p /tmp/tree/accounts/2023 /tmp/tree/letters
seq 1 4000 >/tmp/tree/accounts/2023/january
seq 5000 9000 >/tmp/tree/accounts/2023/february
echo "Dear all," >"/tmp/tree/letters/to all.txt"
echo "done" >/tmp/tree/index
tar -C /tmp/tree -cf /tmp/tree.tar .
gzip -n /tmp/tree.tar
cd /backup
split -n 3 -d /tmp/tree.tar.gz part-
head -c 512 /dev/zero >torn
cat part-01 >>torn
mv torn part-01
rm -r /tmp/tree /tmp/tree.tar.gz
