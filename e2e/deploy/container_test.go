//go:build linux

package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A container is an unpacked image whose programs can run.
type container struct {
	root   string // root directory of the programs
	user   int    // user ID of the programs; 0 means the user of the image
	config struct {
		Config struct {
			User            string
			Env, Entrypoint []string
			Labels          map[string]string
			Healthcheck     struct{ Test []string }
		}
	}
}

// unpackImage unpacks the layers of an OCI image layout with one platform.
func unpackImage(t *testing.T, file string) *container {
	t.Helper()
	layout := map[string][]byte{}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	eachFile(t, archive, func(h *tar.Header, content []byte) { layout[h.Name] = content })
	type descriptor struct{ Digest string }
	var manifest struct {
		Manifests, Layers []descriptor // of an index, of an image
		Config            descriptor
	}
	blob := func(d descriptor) []byte { return layout["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] }
	hubtest.Decode(t, layout["index.json"], &manifest)
	for len(manifest.Layers) == 0 {
		if len(manifest.Manifests) != 1 {
			t.Fatalf("got %d manifests, want 1", len(manifest.Manifests))
		}
		next := blob(manifest.Manifests[0])
		manifest.Manifests = nil
		hubtest.Decode(t, next, &manifest)
	}
	c := &container{root: t.TempDir()}
	hubtest.Decode(t, blob(manifest.Config), &c.config)
	for _, l := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(blob(l)))
		if err != nil {
			t.Fatal(err)
		}
		eachFile(t, z, func(h *tar.Header, content []byte) {
			path := filepath.Join(c.root, filepath.FromSlash(h.Name))
			if h.Typeflag == tar.TypeDir {
				err = os.Mkdir(path, h.FileInfo().Mode())
			} else {
				err = os.WriteFile(path, content, h.FileInfo().Mode())
			}
			if err := errors.Join(err, os.Chown(path, h.Uid, h.Gid)); err != nil {
				t.Fatal(err)
			}
		})
	}
	return c
}

// eachFile calls do for each file of a tar archive.
func eachFile(t *testing.T, r io.Reader, do func(h *tar.Header, content []byte)) {
	t.Helper()
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		do(h, content)
	}
}

// put copies a file into the root, like a mounted secret.
func (c *container) put(t *testing.T, name, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.root, name)
	err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o440), os.Chown(path, 0, c.ids(t).gid))
	if err != nil {
		t.Fatal(err)
	}
}

type ids struct{ uid, gid int }

// ids returns the user and group of the image.
func (c *container) ids(t *testing.T) (i ids) {
	t.Helper()
	if _, err := fmt.Sscanf(c.config.Config.User, "%d:%d", &i.uid, &i.gid); err != nil || i.uid == 0 {
		t.Fatalf("user of the image = %q, %v, want UID:GID without root", c.config.Config.User, err)
	}
	if c.user != 0 {
		i.uid = c.user
	}
	return i
}

// isolate removes the mounts of the machine, all capabilities, and the ability to gain privileges
// from the thread of the test and the processes that it starts. The thread exits with the test,
// because it is never unlocked.
func (c *container) isolate(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Skipf("cannot create a mount namespace: %v", err)
	}
	// A volume as Kubernetes prepares it for fsGroup.
	mountPoint, volume, proc := filepath.Join(c.root, "data"), t.TempDir(), filepath.Join(c.root, "proc")
	if err := errors.Join(os.Chown(volume, 0, c.ids(t).gid), os.Chmod(volume, 0o775|os.ModeSetgid), os.Mkdir(proc, 0o555)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		from, to string
		flags    uintptr
	}{
		{"", "/", syscall.MS_REC | syscall.MS_PRIVATE},
		{c.root, c.root, syscall.MS_BIND},
		{volume, mountPoint, syscall.MS_BIND},
		{"/proc", proc, syscall.MS_BIND}, // Go reads the backlog of connections from it
		{"", c.root, syscall.MS_REMOUNT | syscall.MS_BIND | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV},
	} {
		if err := syscall.Mount(m.from, m.to, "", m.flags, ""); err != nil {
			t.Fatalf("mount %s at %s: %v", m.from, m.to, err)
		}
		if m.flags == syscall.MS_BIND {
			t.Cleanup(func() { _ = syscall.Unmount(m.to, syscall.MNT_DETACH) }) // otherwise the directory cannot be removed
		}
	}
	const capabilityDrop, noNewPrivileges, allCapabilities = 24, 38, 64 // prctl(2)
	for i := range uintptr(allCapabilities) {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, capabilityDrop, i, 0)
		if errno != 0 && errno != syscall.EINVAL { // beyond the last capability
			t.Fatalf("drop capability %d: %v", i, errno)
		}
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, noNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		t.Fatalf("set no_new_privs: %v", errno)
	}
}

// start starts a program of the image, by default its entrypoint.
func (c *container) start(t *testing.T, env []string, command ...string) *hubtest.Process {
	t.Helper()
	if len(command) == 0 {
		command = c.config.Config.Entrypoint
	}
	user := c.ids(t)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(c.config.Config.Env[:len(c.config.Config.Env):len(c.config.Config.Env)], env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = hubtest.Attributes()
	cmd.SysProcAttr.Chroot = c.root
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.uid), Gid: uint32(user.gid)}
	return hubtest.Launch(t, cmd)
}

func (c *container) run(t *testing.T, command ...string) (code int, stdout, stderr string) {
	t.Helper()
	return c.runWith(t, nil, command...)
}

func (c *container) runWith(t *testing.T, env []string, command ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := c.start(t, env, command...)
	code = p.Wait()
	return code, p.Stdout.String(), p.Stderr.String()
}

// wantConfined checks that a process has no privileges, and can write only to its volume.
func wantConfined(t *testing.T, p *hubtest.Process) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.Cmd.Process.Pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532\n", "Gid:\t65532\t65532\t65532\t65532\n", "Groups:\t \n",
		"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status of the process lacks %q:\n%s", want, status)
		}
	}
	mounts, err := os.ReadFile(dir + "mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) { // mounts below its root
		switch f := strings.Fields(line); {
		case f[4] == "/proc", f[4] == "/data" && strings.HasPrefix(f[5], "rw"):
		case f[4] == "/" && strings.HasPrefix(f[5], "ro,nosuid,nodev"):
		default:
			t.Errorf("process has the mount %s", line)
		}
	}
}
