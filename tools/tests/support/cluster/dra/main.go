// Command dra is a spike: a driver of Dynamic Resource Allocation that offers one card by the MiB.
//
//	dra --kubeconfig FILE --node NAME --kubelet FOLDER --mib N
//
// It publishes one device that many claims may share (DRAConsumableCapacity, alpha in Kubernetes 1.34), each with its
// part of the device's memory.  The scheduler adds the parts up.  Nothing is prepared on the node: no container gets
// anything of a card by it, and nothing holds a process to its part.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const name = "card.corral.example"

type driver struct{}

// PrepareResourceClaims has nothing to do on the node: it names what the scheduler has allocated.
func (driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	found := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, one := range claim.Status.Allocation.Devices.Results {
			if one.Driver == name {
				result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{one.Request}, PoolName: one.Pool, DeviceName: one.Device})
			}
		}
		found[claim.UID] = result
	}
	return found, nil
}

// UnprepareResourceClaims has nothing to undo.
func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	found := map[types.UID]error{}
	for _, claim := range claims {
		found[claim.UID] = nil
	}
	return found, nil
}

// HandleError logs what the helper cannot do in the background; it tries again by itself.
func (driver) HandleError(_ context.Context, err error, what string) { log.Printf("%s: %v", what, err) }

// card offers so many MiB.  A claim that names no memory takes all of it: nothing is known of what it holds.
func card(mib int) resourceapi.Device {
	shared, one, all := true, resource.MustParse("1Mi"), resource.MustParse(fmt.Sprintf("%dMi", mib))
	policy := &resourceapi.CapacityRequestPolicy{Default: &all, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &one, Step: &one}}
	return resourceapi.Device{
		Name:                     "card",
		AllowMultipleAllocations: &shared,
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: all, RequestPolicy: policy}},
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "leads to the cluster")
	node := flag.String("node", "", "that has the card")
	kubelet := flag.String("kubelet", "", "the root folder of its kubelet")
	mib := flag.Int("mib", 0, "what the card offers to claims")
	flag.Parse()
	if *mib <= 0 {
		return fmt.Errorf("--mib is %d; it must be above 0", *mib)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(*kubelet, "plugins", name)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	helper, err := kubeletplugin.Start(ctx, driver{},
		kubeletplugin.DriverName(name), kubeletplugin.NodeName(*node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubelet, "plugins_registry")), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: []resourceapi.Device{card(*mib)}}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{*node: pool}}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
