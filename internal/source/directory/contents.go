package directory

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Contents opens the files of a Tree. It opens no file outside of the directory, even if symbolic
// links are put there in the meantime.
type Contents struct {
	tree *Tree
	root *os.Root
}

// Contents returns the contents of the resources. The caller must close them.
func (t *Tree) Contents() (*Contents, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}
	return &Contents{t, root}, nil
}

// Open opens the content of the resource with a loc. The caller must close it.
func (c *Contents) Open(loc string) (io.ReadCloser, error) {
	path, err := c.tree.path(loc)
	if err != nil {
		return nil, err
	}
	f, err := openFile(c.root, path)
	if err != nil {
		return nil, cause(err)
	}
	return f, nil
}

// Close closes the directory. Open contents stay open.
func (c *Contents) Close() error { return c.root.Close() }

// openFile opens a file for reading. Opening a pipe would wait for a writer, and the file may have
// become a pipe. O_NONBLOCK prevents that.
func openFile(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
