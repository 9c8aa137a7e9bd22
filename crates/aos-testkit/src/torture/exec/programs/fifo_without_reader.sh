rm -f lonely
mkfifo lonely
echo nobody > lonely
