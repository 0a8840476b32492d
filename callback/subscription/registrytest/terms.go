package registrytest

import (
	"reflect"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/resourcesync"
)

// Terms returns, by the name of each field of subscription.Terms and of the structs in it, terms
// with a value in that field alone. So a test notices a field that something forgets. The value
// is one that a form may have.
func Terms(t testing.TB) map[string]subscription.Terms {
	t.Helper()
	all := map[string]subscription.Terms{}
	for n := 0; ; n++ {
		var terms subscription.Terms
		fields := fieldsOf("", reflect.ValueOf(&terms).Elem())
		if n == len(fields) {
			return all
		}
		f := fields[n]
		switch v := f.value.Interface().(type) {
		case string:
			f.value.SetString("https://example.org/" + f.name)
		case int, int64:
			f.value.SetInt(7)
		case bool:
			f.value.SetBool(true)
		case time.Duration:
			f.value.SetInt(int64(time.Minute))
		case []string:
			f.value.Set(reflect.ValueOf([]string{"image/png", "text/*"}))
		case []resourcesync.ChangeType:
			f.value.Set(reflect.ValueOf([]resourcesync.ChangeType{resourcesync.Created, resourcesync.Deleted}))
		default:
			t.Fatalf("%s: no value of type %T", f.name, v)
		}
		all[f.name] = terms
	}
}

// A field is one of a struct, or of a struct in it.
type field struct {
	name  string
	value reflect.Value
}

func fieldsOf(name string, v reflect.Value) (all []field) {
	if v.Kind() != reflect.Struct {
		return []field{{name, v}}
	}
	for i := range v.NumField() {
		all = append(all, fieldsOf(v.Type().Field(i).Name, v.Field(i))...)
	}
	return all
}
