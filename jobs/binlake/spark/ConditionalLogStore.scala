package binlake

import java.io.{ByteArrayOutputStream, FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.Arrays

import io.delta.storage.HadoopFileSystemLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, FileSystem, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import software.amazon.awssdk.core.exception.SdkServiceException

/** Delta's log on S3, safe for writers in several processes: a commit is one conditional PUT (If-None-Match), of two
  * for one version the store takes the first. Delta's own S3SingleDriverLogStore looks, then overwrites.
  *
  * A PUT whose answer got lost is repeated, and then refused: what lies there is told apart by its bytes, since each
  * commit has a random txnId.
  */
class ConditionalLogStore(conf: Configuration) extends HadoopFileSystemLogStore(conf) {
  import ConditionalLogStore._

  override def write(
      path: Path, actions: java.util.Iterator[String], overwrite: java.lang.Boolean, conf: Configuration): Unit = {
    val fs = path.getFileSystem(conf)
    val bytes = new ByteArrayOutputStream
    while (actions.hasNext) {
      bytes.write(actions.next.getBytes(UTF_8))
      bytes.write('\n')
    }
    if (overwrite) put(fs.create(path, true), bytes.toByteArray)
    else create(fs, path, bytes.toByteArray, Tries)
  }

  private def create(fs: FileSystem, path: Path, data: Array[Byte], tries: Int): Unit =
    try put(fs.createFile(path).must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true).build(), data)
    catch {
      case error: IOException =>
        content(fs, path) match {
          case Some(there) if Arrays.equals(there, data) => ()
          case Some(_) => throw new FileAlreadyExistsException(path.toString)
          case None if isConflict(error) && tries > 1 =>
            Thread.sleep(Pause)
            create(fs, path, data, tries - 1)
          case None => throw error
        }
    }

  /** Nothing is uploaded before close. */
  private def put(stream: FSDataOutputStream, data: Array[Byte]): Unit = {
    stream.write(data)
    stream.close()
  }

  private def content(fs: FileSystem, path: Path): Option[Array[Byte]] =
    try {
      val stream = fs.open(path)
      try Some(stream.readAllBytes()) finally stream.close()
    } catch { case _: FileNotFoundException => None }

  override def isPartialWriteVisible(path: Path, conf: Configuration): java.lang.Boolean = false
}

object ConditionalLogStore {
  private val Tries = 20
  private val Pause = 100L // ms

  /** Another conditional PUT of the key was under way: S3 asks to try again. */
  private def isConflict(error: Throwable): Boolean = Iterator.iterate(error)(_.getCause).takeWhile(_ != null).exists {
    case told: SdkServiceException => told.statusCode == 409
    case _ => false
  }
}
