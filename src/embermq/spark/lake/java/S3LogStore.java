package embermq;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits of Delta tables on S3 that only one of several processes can make.
 *
 * <p>Delta's own store asks whether a commit is there and then writes it: another process may have written it in
 * between, and its commit is lost. Here the file is written with the condition If-None-Match, so that S3 decides.
 */
public final class S3LogStore extends S3SingleDriverLogStore {

  public S3LogStore(Configuration hadoop) {
    super(hadoop);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoop) throws IOException {
    if (overwrite) {
      super.write(path, actions, true, hadoop);
      return;
    }
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      content.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    byte[] bytes = content.toByteArray();
    FileSystem files = path.getFileSystem(hadoop);
    FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path).overwrite(false);
    builder.must("fs.option.create.conditional.overwrite", true);
    try (FSDataOutputStream stream = (FSDataOutputStream) builder.build()) {
      stream.write(bytes);
    } catch (IOException failure) {
      // A request that was repeated finds its own first attempt: every commit has an identifier of its own.
      if (!files.exists(path)) {
        throw failure;
      }
      if (!Arrays.equals(bytes, read(files, path))) {
        throw new FileAlreadyExistsException(path.toString());
      }
    }
  }

  private static byte[] read(FileSystem files, Path path) throws IOException {
    try (FSDataInputStream stream = files.open(path)) {
      return stream.readAllBytes();
    }
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration hadoop) {
    return false;
  }
}
