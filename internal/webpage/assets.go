package webpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/problem"
)

//go:embed assets
var embedded embed.FS

// An asset is a file that the page loads.
type asset struct {
	mediaType     string
	plain, zipped []byte
}

// version is a digest of all assets, which is part of their URLs, so browsers may cache them
// forever. modules are the names of the scripts.
var assets, version, modules = readAssets()

var mediaTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

func readAssets() (all map[string]asset, version string, modules []string) {
	all = map[string]asset{}
	hash := sha256.New()
	files, err := fs.ReadDir(embedded, "assets")
	for _, file := range files {
		name := file.Name()
		var text []byte
		if text, err = embedded.ReadFile("assets/" + name); err != nil {
			break
		}
		fmt.Fprintln(hash, name, len(text))
		hash.Write(text)
		var zipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // fails only for an unknown level
		_, _ = z.Write(text)                                       // a Buffer does not fail
		_ = z.Close()
		all[name] = asset{mediaTypes[path.Ext(name)], text, zipped.Bytes()}
		if strings.HasSuffix(name, ".js") {
			modules = append(modules, name)
		}
	}
	if err != nil {
		panic(err) // embedded files are readable
	}
	return all, hex.EncodeToString(hash.Sum(nil)[:8]), modules
}

// ServeAsset serves the asset with a name. of is the version of the page that refers to it. If a
// hub of another version sent that page, the response is this hub's file, and must not be cached.
func (s *Server) ServeAsset(w http.ResponseWriter, r *http.Request, of, name string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	a, ok := assets[name]
	if !ok {
		return problem.New(http.StatusNotFound, "not-found", "no such asset")
	}
	h := w.Header()
	h.Set("Content-Type", a.mediaType)
	h.Set("Cache-Control", "no-cache")
	if of == version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Add("Vary", "Accept-Encoding")
	body := a.plain
	if accept.Gzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	return nil
}
