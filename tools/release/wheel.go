package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

const pythonDir = "clients/python"

// makeWheel makes a wheel of the Python client: what pip installs. It is a zip of the
// package and of what says so, and needs no Python to be made.
func (r *release) makeWheel(context.Context) error {
	version, err := pythonVersion(r.version)
	if err != nil {
		return err
	}
	project, err := os.ReadFile(filepath.Join(r.root, pythonDir, "pyproject.toml"))
	if err != nil {
		return err
	}
	value := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + ` = (?:\{ text = )?"(.*?)"`).FindSubmatch(project)
		if m == nil {
			err = errors.Join(err, fmt.Errorf("%s/pyproject.toml has no %s", pythonDir, key))
			return ""
		}
		return string(m[1])
	}
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nLicense: %s\nRequires-Python: %s\nDescription-Content-Type: text/markdown\n\n",
		value("name"), version, value("description"), value("license"), value("requires-python"))
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(r.root, pythonDir, "README.md"))
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.root, pythonDir, "rshub", "*.py*"))
	if err != nil {
		return err
	}
	files = append(files, filepath.Join(r.root, pythonDir, "rshub", "py.typed"))
	var members []member
	for _, file := range files {
		if filepath.Base(file) == "__pycache__" || filepath.Ext(file) == ".pyc" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		members = append(members, member{name: "rshub/" + filepath.Base(file), content: content})
	}
	info := "rshub-" + version + ".dist-info"
	members = append(members,
		member{name: path.Join(info, "LICENSE"), content: license},
		member{name: path.Join(info, "METADATA"), content: append([]byte(metadata), readme...)},
		member{name: path.Join(info, "WHEEL"), content: []byte("Wheel-Version: 1.0\nGenerator: rshub\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})
	var record bytes.Buffer
	for _, m := range members {
		sum := sha256.Sum256(m.content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", m.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(m.content))
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", info)
	members = append(members, member{name: path.Join(info, "RECORD"), content: record.Bytes()})
	return writeFile(filepath.Join(r.dist, "rshub-"+version+"-py3-none-any.whl"), func(w io.Writer) error { return r.writeZip(w, members) })
}

// pythonVersion writes a version as Python has versions (PEP 440): v1.2.3-rc.1 is 1.2.3rc1,
// and v1.2.3-dev+REVISION is 1.2.3.dev0+REVISION.
func pythonVersion(version string) (string, error) {
	m := goVersion.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("the version %s is none that Python knows: use v1.2.3, or with -alpha.1, -beta.1 or -rc.1", version)
	}
	v := m[1]
	if m[2] != "" {
		v += map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3]
	}
	if m[4] != "" {
		v += ".dev0+" + m[4]
	}
	return v, nil
}

var goVersion = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+))?(?:-dev\+([0-9a-f]{12}))?$`)

// verifyWheel has Python import the client from the wheel, and look at what it says of
// itself.
func (r *release) verifyWheel(ctx context.Context) error {
	file, err := r.one("*.whl")
	if err != nil {
		return err
	}
	names, err := zipNames(file)
	if err != nil {
		return err
	}
	version, err := pythonVersion(r.version)
	if err != nil {
		return err
	}
	const script = `import base64, hashlib, importlib.metadata, rshub
d = importlib.metadata.distribution("rshub")
for f in d.files:
    if f.hash:
        assert base64.urlsafe_b64encode(hashlib.sha256(f.read_binary()).digest()).decode().rstrip("=") == f.hash.value, f
print(d.version, len(d.files), rshub.Client().hub)`
	said, err := r.output(ctx, []string{"PYTHONPATH=" + file, "PYTHONDONTWRITEBYTECODE=1"}, "python3", "-W", "error", "-c", script)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%s %d http://127.0.0.1:8080", version, len(names)); said != want {
		return fmt.Errorf("%s says %q, not %q", file, said, want)
	}
	if !strings.Contains(file, version) {
		return fmt.Errorf("%s is not named by its version %s", file, version)
	}
	return nil
}
