package idn

import (
	"net/url"
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"https://bücher.example/ä?ö#ü", "https://xn--bcher-kva.example/ä?ö#ü"},
		{"https://BÜCHER.example:8443", "https://xn--bcher-kva.example:8443"},
		{"https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"},
		{"https://ü:ä@bücher.example?x", "https://ü:ä@xn--bcher-kva.example?x"},
		{"https://straße.example/", "https://xn--strae-oqa.example/"},
		{"https://例え。テスト/", "https://xn--r8jz45g.xn--zckzah/"},
		{"https://_dmarc.bücher.example/", "https://_dmarc.xn--bcher-kva.example/"},
		{"https://xn--bcher-kva.example/%C3%A4", "https://xn--bcher-kva.example/%C3%A4"},
		{"https://A.example/ä", "https://A.example/ä"},
		{"https://[2001:db8::1]:80/ä", "https://[2001:db8::1]:80/ä"},
		{"https://a%zz/", "https://a%zz/"},
		{"https://%41.example/", "https://%41.example/"},
		{"urn:x:ä", "urn:x:ä"},
		{"/ä", "/ä"},
		{"", ""},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := URL(tt.in)
			if got != tt.want || err != nil {
				t.Errorf("URL(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
			if again, err := URL(got); again != got || err != nil {
				t.Errorf("URL(%q) = %q, %v, want it unchanged", got, again, err)
			}
			if u, err := url.Parse(tt.in); err == nil && u.Host != "" {
				if err := Host(u); err != nil || !strings.Contains(tt.want, u.Host) && u.Host != "A.example" {
					t.Errorf("Host(%q) = %q, %v, want the same as for %q", tt.in, u.Host, err, tt.want)
				}
			}
		})
	}
}

func TestURLError(t *testing.T) {
	for _, in := range []string{"https://\u2028.example/", "https://a.example\u2100b.example/", "https://a\uff20b.example/", "https://a%E2%84%80.example/", "https://ü..example/", "https://" + strings.Repeat("ü", 70) + ".example/"} {
		got, err := URL(in)
		if err == nil {
			t.Errorf("URL(%q) = %q, want an error", in, got)
		}
	}
}
