"""What programs do with files in Python; prints what it sees, so that two runs can be compared."""

import errno
import fcntl
import glob
import json
import mmap
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

def name(e):
    return errno.errorcode.get(e.errno, e.errno)
with open('t.txt', 'w') as f:
    f.write('line\n' * 1000)
    f.flush()
    print(f.tell(), os.fstat(f.fileno()).st_size)
with open('t.txt', 'r+b') as f:
    f.seek(10)
    print(f.read(5))
    f.seek(-5, 2)
    print(f.read())
    f.seek(0)
    f.write(b'LINE')
    f.truncate(4000)
print(os.path.getsize('t.txt'), open('t.txt').readline())
with open('t.txt', 'ab') as f:
    f.write(b'tail')
    print(f.tell())
with open('b', 'wb', buffering=0) as f:
    print(f.write(b'x' * 3000000))
    print(os.pwrite(f.fileno(), b'yy', 10), os.pread(os.open('b', os.O_RDONLY), 4, 9))
    print(os.writev(f.fileno(), [b'a', b'bc', b'']))
fd = os.open('b', os.O_RDWR)
bufs = [bytearray(3), bytearray(5)]
print(os.readv(fd, bufs), bufs, os.lseek(fd, 0, 1), os.lseek(fd, 0, 2))
os.ftruncate(fd, 100)
os.fsync(fd)
os.fdatasync(fd)
for w in (os.SEEK_DATA,):
    print(os.lseek(fd, 5, w))
try:
    with mmap.mmap(fd, 100) as m:
        m[5:10] = b'store'
        print('mmap worked', os.pread(fd, 10, 2))
except OSError as e:
    print('mmap', name(e))
os.makedirs('p/q/r', exist_ok=True)
os.mkdir('m', 448)
print(oct(os.stat('m').st_mode))
for i in range(300):
    open(f'p/q/file{i}', 'w').write(str(i))
print(len(os.listdir('p/q')), sorted((e.name for e in os.scandir('p/q') if e.is_dir())), sum((e.stat().st_size for e in os.scandir('p/q') if e.is_file())))
print(sorted(os.listdir(os.open('p', os.O_RDONLY))))
shutil.copytree('p', 'p2')
print(sum((len(f) for _, _, f in os.walk('p2'))))
shutil.move('p2', 'p3')
shutil.rmtree('p3')
print(os.path.exists('p3'))
shutil.copyfile('b', 'b2')
shutil.copy2('t.txt', 't2')
print(os.stat('t2').st_mtime_ns == os.stat('t.txt').st_mtime_ns)
os.symlink('t.txt', 'sl')
print(os.readlink('sl'), os.path.islink('sl'), os.path.realpath('sl') == os.path.join(os.getcwd(), 't.txt'))
os.link('t.txt', 'hl')
print(os.stat('hl').st_nlink, os.path.samefile('hl', 't.txt'))
os.rename('hl', 'hl2')
os.replace('hl2', 't2')
os.utime('t2', (1, 2))
print(os.stat('t2').st_mtime, os.stat('t2').st_atime)
os.utime('t2', ns=(5, 7))
print(os.stat('t2').st_mtime_ns)
os.chmod('t2', 256)
print(oct(os.stat('t2').st_mode), os.access('t2', os.R_OK), os.access('nope', os.F_OK))
for call in (
    lambda: os.rmdir('p'),
    lambda: os.unlink('p'),
    lambda: open('no/such'),
    lambda: os.mkdir('p'),
    lambda: open('p', 'w'),
    lambda: os.listdir('t2'),
    lambda: os.open('t.txt', os.O_CREAT | os.O_EXCL),
    lambda: os.rename('p', 'p/q/x'),
    lambda: os.open('sl', os.O_NOFOLLOW),
    lambda: open('x' * 300, 'w'),
    lambda: os.stat('t.txt/x'),
    lambda: os.readlink('t.txt'),
    lambda: os.read(os.open('t.txt', os.O_WRONLY), 1),
    lambda: os.write(os.open('t.txt', os.O_RDONLY), b'1'),
    lambda: os.read(os.open('p', os.O_RDONLY), 1),
    lambda: os.lseek(fd, -1, 0),
    lambda: os.ftruncate(os.open('t.txt', os.O_RDONLY), 1),
):
    try:
        call()
        print('no error')
    except OSError as e:
        print(name(e))
r = subprocess.run(['cat'], stdin=open('t.txt'), stdout=open('sub.out', 'w'))
print(r.returncode, os.path.getsize('sub.out'))
subprocess.run('echo shell; ls p > ls.out; exit 3', shell=True, stdout=open('sh.out', 'w'), stderr=subprocess.STDOUT)
print(open('sh.out').read(), open('ls.out').read())
f = open('inherit', 'w+')
f.write('parent\n')
f.flush()
subprocess.run(['sh', '-c', f'echo child >&{f.fileno()}'], pass_fds=[f.fileno()])
f.seek(0)
print(f.read())
subprocess.run(['sh', '-c', 'echo in cwd > cwdfile; cat cwdfile; basename $(pwd)'], cwd='p')
print(sorted(os.listdir('p')))
sys.stdout.flush()
with subprocess.Popen(['sort'], stdin=subprocess.PIPE, stdout=open('sorted', 'w'), text=True) as p:
    p.communicate('b\na\n')
print(open('sorted').read())
pid = os.fork()
if pid == 0:
    os.lseek(f.fileno(), 0, 2)
    os.write(f.fileno(), b'forked\n')
    os._exit(0)
os.waitpid(pid, 0)
print(os.lseek(f.fileno(), 0, 1))
f.seek(0)
print(f.read())

def work(i):
    with open(f'th{i}', 'wb') as f:
        for k in range(50):
            f.write(bytes([i]) * 10000)
ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in ts]
[t.join() for t in ts]
print([os.path.getsize(f'th{i}') for i in range(8)], all((set(open(f'th{i}', 'rb').read()) == {i} for i in range(8))))
tempfile.tempdir = os.getcwd()
with tempfile.NamedTemporaryFile() as t:
    t.write(b'abc')
    t.flush()
    print(os.path.getsize(t.name), os.path.dirname(t.name) == os.getcwd())
with tempfile.TemporaryFile() as t:
    t.write(b'abc')
    t.seek(0)
    print(t.read())
with tempfile.TemporaryDirectory() as d:
    open(d + '/x', 'w').close()
    print(os.listdir(d))
print(os.path.exists(d))
u = open('unlinked', 'w+')
u.write('still here')
os.unlink('unlinked')
u.seek(0)
print(u.read(), os.path.exists('unlinked'), os.fstat(u.fileno()).st_nlink)
json.dump({'a': [1, 2]}, open('j.json', 'w'))
print(json.load(open('j.json')))
print(sorted(glob.glob('th*'))[:2], sorted(map(str, pathlib.Path('.').glob('p/*'))))
os.utime('t.txt', (1e9, 1e9))  # An archive holds times: the same ones wherever this runs.
with zipfile.ZipFile('z.zip', 'w', strict_timestamps=False) as z:
    z.write('t.txt')
    z.writestr(zipfile.ZipInfo('s'), 'hi')
print(sorted(zipfile.ZipFile('z.zip').namelist()))
pathlib.Path('pp').write_text('x')
print(pathlib.Path('pp').read_text(), pathlib.Path('pp').stat().st_size, pathlib.Path('pp').resolve().name)
root = os.getcwd()
d = os.open('p', os.O_RDONLY | os.O_DIRECTORY)
h = os.open('atfile', os.O_CREAT | os.O_WRONLY, 384, dir_fd=d)
os.close(h)
print(os.stat('atfile', dir_fd=d).st_mode)
os.rename('atfile', '../moved', src_dir_fd=d, dst_dir_fd=d)
os.mkdir('dd', dir_fd=d)
os.unlink('../moved', dir_fd=d)
os.rmdir('dd', dir_fd=d)
os.fchdir(d)
print(os.path.basename(os.getcwd()))
os.chdir('..')
os.chdir('/tmp')
print(os.getcwd())
os.chdir(root)
print(fcntl.fcntl(fd, fcntl.F_GETFL) & 3, os.get_inheritable(fd), os.isatty(fd))
g = os.dup(fd)
os.close(fd)
print(len(os.pread(g, 200, 0)))
k = os.dup2(g, 77)
os.close(g)
print(os.fstat(77).st_size)
print([len(x) for x in select.select([77], [], [], 1)])
po = select.poll()
po.register(77, select.POLLIN)
print(po.poll(1000))
os.close(77)
try:
    os.fstat(77)
except OSError as e:
    print(name(e))
try:
    os.getxattr('/' + 't.txt', 'user.x')
except OSError as e:
    print('x')
print(os.statvfs('p').f_namemax, os.umask(63))
open('um', 'w').close()
print(oct(os.stat('um').st_mode))
os.posix_fallocate(os.open('pf', os.O_CREAT | os.O_WRONLY), 0, 5000)
print(os.path.getsize('pf'))
os.truncate('pf', 3)
print(os.path.getsize('pf'))
os.sendfile
print(os.stat('.').st_ino == os.stat(os.getcwd()).st_ino, os.lstat('sl').st_size, os.path.isdir('p/.'), os.path.isfile('p/../t.txt'))
